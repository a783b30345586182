"""I8: while a broker lives, the high watermark of a replica never goes back: no truncation below it."""

from __future__ import annotations

from moldau.replication.partition import Partition
from tests.simulation.invariants.observation import Observation, PartitionKey, Violation


class HighWatermarkRises:
    def __init__(self) -> None:
        self._before: dict[tuple[int, int, PartitionKey], tuple[Partition, int]] = {}

    def check(self, seen: Observation) -> None:
        for key, replica in seen.all_replicas():
            partition = replica.partition
            place = (replica.node_id, replica.life, key)
            same, before = self._before.get(place, (partition, 0))
            if same is partition and partition.high_watermark < before:
                raise Violation(f"{replica}: the high watermark went from {before} back to {partition.high_watermark}")
            self._before[place] = partition, partition.high_watermark
