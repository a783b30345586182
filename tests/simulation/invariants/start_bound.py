"""I8: no log begins past its high watermark: what is not known to be committed is not deleted, on any replica."""

from __future__ import annotations

from tests.simulation.invariants.observation import Observation, Violation


class StartBound:
    def check(self, seen: Observation) -> None:
        for _, replica in seen.all_replicas():
            partition, log = replica.partition, replica.partition.log
            if log.log_start_offset > partition.high_watermark and log.failure is None:
                raise Violation(
                    f"{replica}: begins at {log.log_start_offset}, the high watermark is {partition.high_watermark}"
                )
