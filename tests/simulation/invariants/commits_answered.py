"""P6: no produce waits in a leader's purgatory for records that are committed, and the waits stand in the order of the
log.

A wait behind one for a later offset would be settled late, or expire, though its records are committed.
"""

from __future__ import annotations

from tests.simulation.invariants.observation import Observation, Violation


class CommitsAnswered:
    def check(self, seen: Observation) -> None:
        for _, replica in seen.all_replicas():
            partition = replica.partition
            watchers = replica.broker.purgatory._watchers.get(partition)
            if watchers is None:
                continue
            waits = [wait.end_offset for wait in watchers.commits if wait._queue is not None]
            if waits != sorted(waits):
                raise Violation(f"{replica}: produces wait for the offsets {waits}, in this order")
            if waits and waits[0] <= partition.high_watermark:
                raise Violation(f"{replica}: a produce waits for {waits[0]} of {partition.high_watermark} committed")
