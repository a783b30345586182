"""Copies never pass the last stable offset: while a copy is under way, no transaction with records in it, or before it,
is undecided, and all of it is committed."""

from __future__ import annotations

from moldau.storage.tiered.metadata.remote_segment import RemotePartition
from tests.simulation.invariants.observation import Observation, PartitionKey, Replica, StoredBatch, Violation
from tests.simulation.tiering.remote_metadata import FINISHED, STARTED, RemoteMetadata


class StableCopies:
    def __init__(self) -> None:
        self._leaders: dict[PartitionKey, Replica] = {}
        self._checked: set[bytes] = set()

    def check(self, seen: Observation, metadata: RemoteMetadata) -> None:
        for key, replica in seen.all_replicas():
            if replica.partition.leadership is not None:
                self._leaders[key] = replica
        for partition, segments in metadata.segments.items():
            new = [
                each.segment
                for segment_id, each in segments.items()
                if segment_id not in self._checked and each.state in (STARTED, FINISHED)
            ]
            key = (partition.topic_id, partition.partition)
            if new and metadata.leaders.is_current(seen, key):
                last_offset = max(each.last_offset for each in new)
                self._check(seen, key, partition, last_offset)
                self._checked.update(each.segment_id for each in new)

    def _check(self, seen: Observation, key: PartitionKey, partition: RemotePartition, last_offset: int) -> None:
        leader, committed = self._leaders[key], seen.committed[key]
        if last_offset >= committed.end_offset:
            raise Violation(f"{partition}: a copy reaches {last_offset}, committed is {committed.end_offset}")
        batches: dict[int, StoredBatch] = {
            **committed.batches,
            **{each.base_offset: each for each in leader.content.batches if each.base_offset >= committed.end_offset},
        }
        opened = first_undecided([batches[base] for base in sorted(batches)])
        if opened is not None and opened <= last_offset and not committed.unseen:
            raise Violation(f"{partition}: a copy reaches {last_offset}, past the open transaction at {opened}")


def first_undecided(batches: list[StoredBatch]) -> int | None:
    """The first offset of the earliest transaction without a marker. A marker that is not committed yet counts: a
    replica that was loaded may take the transaction for decided (`StableOffset`)."""
    opened: dict[int, int] = {}
    for batch in batches:
        if batch.is_marker:
            opened.pop(batch.producer_id, None)
        elif batch.is_transactional:
            opened.setdefault(batch.producer_id, batch.base_offset)
    return min(opened.values(), default=None)
