"""I8: while a broker lives, the high watermark of a replica never goes back: no truncation below it.

A follower that had deleted more than its new leader, and lost what followed, begins anew before its old log start.
"""

from __future__ import annotations

from replication.partition import Partition
from tests.simulation.invariants.observation import Observation, PartitionKey, Violation


class HighWatermarkRises:
    def __init__(self) -> None:
        self._before: dict[tuple[int, int, PartitionKey], tuple[Partition, int, int]] = {}

    def check(self, seen: Observation) -> None:
        for key, replica in seen.all_replicas():
            partition = replica.partition
            place = (replica.node_id, replica.life, key)
            start = partition.log.log_start_offset
            same, before, start_before = self._before.get(place, (partition, 0, start))
            if same is partition and partition.high_watermark < before and start >= start_before:
                raise Violation(f"{replica}: the high watermark went from {before} back to {partition.high_watermark}")
            self._before[place] = partition, partition.high_watermark, start
