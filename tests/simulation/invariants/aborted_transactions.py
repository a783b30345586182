"""P6: the transaction index of a replica lists the aborted transactions of its log, no other, in the markers' order:
read_committed consumers skip what it lists, and return everything else."""

from __future__ import annotations

from moldau.storage.segment.transaction_index import AbortedTransaction, CorruptTransactionIndex
from tests.simulation.invariants.observation import Observation, PartitionKey, Replica, StoredBatch, Violation


class AbortedTransactions:
    def __init__(self) -> None:
        self._looked: dict[tuple[int, int, PartitionKey], object] = {}

    def check(self, seen: Observation) -> None:
        for key, replica in seen.all_replicas():
            log, batches = replica.partition.log, replica.content.batches
            newest = (log.end_offset, batches[-1].identity if batches else None)
            place = (replica.node_id, replica.life, key)
            if self._looked.get(place) == newest or log.failure is not None or log.local_start_offset > 0:
                continue  # of a deleted transaction the log may hold the marker alone
            self._looked[place] = newest
            expected = aborted_of(batches)
            try:
                indexed = log.aborted_transactions(0, log.end_offset)
            except CorruptTransactionIndex as error:
                raise Violation(f"{replica}: {error}") from error
            except OSError:
                continue  # the disk refuses, which the broker has not met yet
            if replica.is_compacted:
                self._check_compacted(replica, indexed, expected)
            elif indexed != expected:
                different = sorted({*indexed} ^ {*expected})
                raise Violation(f"{replica}: {len(indexed)} of {len(expected)} are indexed, different: {different[:3]}")

    @staticmethod
    def _check_compacted(
        replica: Replica, indexed: list[AbortedTransaction], expected: list[AbortedTransaction]
    ) -> None:
        """What is left of an aborted transaction is covered; compaction may have taken the beginning of it."""
        first_offsets = {(each.producer_id, each.last_offset): each.first_offset for each in indexed}
        for each in expected:
            first_offset = first_offsets.get((each.producer_id, each.last_offset))
            if first_offset is None or first_offset > each.first_offset:
                raise Violation(f"{replica}: {each} is not indexed, of which the log has records")


def aborted_of(batches: list[StoredBatch]) -> list[AbortedTransaction]:
    opened: dict[int, int] = {}
    """By producer id: the first offset of its transaction."""
    aborted = []
    for batch in batches:
        if batch.is_marker:
            first_offset = opened.pop(batch.producer_id, None)
            if first_offset is not None and batch.is_abort:
                stable = min(opened.values(), default=batch.last_offset + 1)
                aborted.append(AbortedTransaction(batch.producer_id, first_offset, batch.last_offset, stable))
        elif batch.is_transactional:
            opened.setdefault(batch.producer_id, batch.base_offset)
    return aborted
