"""I8: no high watermark is past the end of the log."""

from __future__ import annotations

from tests.simulation.invariants.observation import Observation, Violation


class HighWatermarkBound:
    def check(self, seen: Observation) -> None:
        for _, replica in seen.all_replicas():
            partition, log = replica.partition, replica.partition.log
            if partition.high_watermark > log.end_offset:
                raise Violation(
                    f"{replica}: high watermark {partition.high_watermark}, the log ends at {log.end_offset}"
                )
