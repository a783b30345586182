"""I13: the last stable offset is the first offset of the earliest transaction without a committed end, or the high
watermark; and no record of an epoch that a marker has ended lies behind that marker.

A transaction is decided once its marker lies below the high watermark: a marker above it may yet be lost.
"""

from __future__ import annotations

from tests.simulation.invariants.observation import Observation, PartitionKey, Replica, StoredBatch, Violation


class StableOffset:
    def __init__(self) -> None:
        self._looked: dict[tuple[int, int, PartitionKey], tuple[object, int]] = {}

    def check(self, seen: Observation) -> None:
        for key, replica in seen.all_replicas():
            partition = replica.partition
            if partition.log.failure is not None or partition.is_internal or partition.log.log_start_offset > 0:
                continue
            batches, high_watermark = replica.content.batches, partition.high_watermark
            newest = ((len(batches), batches[-1].identity if batches else None), high_watermark)
            place = (replica.node_id, replica.life, key)
            if self._looked.get(place) == newest:
                continue
            self._looked[place] = newest
            check_epochs(replica, batches)
            expected = stable_offset(batches, high_watermark)
            if partition.last_stable_offset != expected:
                told = f"last stable offset {partition.last_stable_offset}, and by its log {expected}"
                raise Violation(f"{replica}: high watermark {high_watermark}, {told}")


def stable_offset(batches: list[StoredBatch], high_watermark: int) -> int:
    opened: dict[int, int] = {}
    """By producer id: the first offset of its transaction."""
    for batch in batches:
        if batch.is_marker:
            if batch.last_offset < high_watermark:
                opened.pop(batch.producer_id, None)
        elif batch.is_transactional:
            opened.setdefault(batch.producer_id, batch.base_offset)
    return min((high_watermark, *opened.values()))


def check_epochs(replica: Replica, batches: list[StoredBatch]) -> None:
    ended: dict[int, int] = {}
    """By producer id: the epoch of its last marker."""
    for batch in batches:
        if batch.is_marker:
            ended[batch.producer_id] = max(batch.producer_epoch, ended.get(batch.producer_id, -1))
        elif batch.producer_id >= 0 and batch.producer_epoch < ended.get(batch.producer_id, -1):
            raise Violation(
                f"{replica}: producer {batch.producer_id} wrote with epoch {batch.producer_epoch} at"
                f" {batch.base_offset}, after a marker with epoch {ended[batch.producer_id]}"
            )
