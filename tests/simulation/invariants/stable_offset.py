"""I13: the last stable offset is the first offset of the earliest transaction without a committed end, or the high
watermark; and no record of an epoch that a marker has ended lies behind that marker.

A transaction is decided once its marker lies below the high watermark: a marker above it may yet be lost. A replica
that was loaded with such a marker may take the transaction for decided, as in Apache Kafka: producer snapshots do not
say how far the high watermark was. The outcome cannot become another one: the coordinator has committed it before.
"""

from __future__ import annotations

from tests.simulation.invariants.observation import Observation, PartitionKey, Replica, StoredBatch, Violation


class StableOffset:
    def __init__(self) -> None:
        self._looked: dict[tuple[int, int, PartitionKey], tuple[object, int]] = {}
        self._loaded_end: dict[tuple[int, int, PartitionKey], int] = {}
        """Where the log of a life of the node ended when it was first seen."""

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
            loaded_end = self._loaded_end.setdefault(place, batches[-1].last_offset + 1 if batches else 0)
            check_epochs(replica, batches)
            expected = stable_offset(batches, high_watermark, high_watermark)
            as_loaded = stable_offset(batches, high_watermark, max(high_watermark, loaded_end))
            if partition.last_stable_offset not in (expected, as_loaded):
                told = f"last stable offset {partition.last_stable_offset}, and by its log {expected}"
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
