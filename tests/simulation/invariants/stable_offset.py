"""I13: the last stable offset is the first offset of the earliest transaction without a committed end, or the high
watermark; and no record of an epoch that a marker has ended lies behind that marker.

A transaction is decided once its marker lies below the high watermark: a marker above it may yet be lost. A replica
that was loaded, or truncated, may take it for decided if a producer snapshot covers the marker, as in Apache Kafka:
snapshots do not say how far the high watermark was. The outcome cannot become another one: the coordinator has
committed it before.

In a compacted log the first records of a transaction may be cleaned away while its marker is not below the high
watermark any more: a replica that was restarted has an older one. The replica knows the first offset all the same.
"""

from __future__ import annotations

from tests.simulation.invariants.observation import Observation, PartitionKey, Replica, StoredBatch, Violation


class StableOffset:
    def __init__(self) -> None:
        self._looked: dict[tuple[int, int, PartitionKey], tuple[object, int]] = {}
        self._restored: dict[tuple[int, int, PartitionKey], tuple[int, int]] = {}
        """The leader epoch, and where the log ended when that was first seen: truncations come before its appends."""

    def check(self, seen: Observation) -> None:
        for key, replica in seen.all_replicas():
            partition = replica.partition
            if partition.log.failure is not None or partition.is_internal or partition.log.local_start_offset > 0:
                continue
            batches, high_watermark = replica.content.batches, partition.high_watermark
            newest = ((len(batches), batches[-1].identity if batches else None), high_watermark)
            place = (replica.node_id, replica.life, key)
            end_offset = batches[-1].last_offset + 1 if batches else 0
            leader_epoch, restored_end = self._restored.get(place, (partition.leader_epoch, end_offset))
            restored_end = min(restored_end, end_offset) if leader_epoch == partition.leader_epoch else end_offset
            self._restored[place] = partition.leader_epoch, restored_end
            if self._looked.get(place) == newest:
                continue
            self._looked[place] = newest
            check_epochs(replica, batches)
            expected = stable_offset(batches, high_watermark, high_watermark)
            uncommitted = [
                each.last_offset for each in batches if each.is_marker and each.last_offset >= high_watermark
            ]
            restored = [
                stable_offset(batches, high_watermark, offset + 1) for offset in uncommitted if offset < restored_end
            ]
            last_stable_offset, is_compacted = partition.last_stable_offset, partition.log.config.is_compacted
            if is_compacted and begins_before_what_is_left(batches, high_watermark, last_stable_offset):
                continue
            if last_stable_offset not in (expected, *restored):
                told = f"last stable offset {last_stable_offset}, and by its log {expected}"
                raise Violation(f"{replica}: high watermark {high_watermark}, {told}")


def stable_offset(batches: list[StoredBatch], high_watermark: int, decided_end: int) -> int:
    """With the transactions decided whose markers lie below `decided_end`."""
    opened: dict[int, int] = {}
    """By producer id: the first offset of its transaction."""
    for batch in batches:
        if batch.is_marker:
            if batch.last_offset < decided_end:
                opened.pop(batch.producer_id, None)
        elif batch.is_transactional:
            opened.setdefault(batch.producer_id, batch.base_offset)
    return min((high_watermark, *opened.values()))


def begins_before_what_is_left(batches: list[StoredBatch], high_watermark: int, offset: int) -> bool:
    """Whether a transaction without a committed end may have begun at an offset whose records are cleaned away: after
    the marker before it, and before the first of its records that are left."""
    free_from: dict[int, int] = {}
    """By producer id: the offset after its last marker."""
    left_from: dict[int, int] = {}
    """By producer id: the first record since."""
    for batch in batches:
        if not batch.is_transactional:
            continue
        if not batch.is_marker:
            left_from.setdefault(batch.producer_id, batch.base_offset)
            continue
        end = min(left_from.pop(batch.producer_id, batch.base_offset), high_watermark)
        if batch.last_offset >= high_watermark and free_from.get(batch.producer_id, 0) <= offset < end:
            return not any(each.base_offset <= offset <= each.last_offset for each in batches)
        free_from[batch.producer_id] = batch.last_offset + 1
    return False


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
