"""P5: in every log each producer's epochs only rise, and within an epoch each batch goes on where the last one ended.

Whoever wrote it and whatever clients were told: a leader that takes a batch with a gap before it, or one that it holds
already, or one of a former epoch, is found by what lies in its log, committed or not.
"""

from __future__ import annotations

from moldau.broker.config.internal_topics import GROUP_METADATA_TOPIC
from moldau.protocol.record_batch import SEQUENCE_MAX
from tests.simulation.invariants.observation import Observation, PartitionKey, Replica, StoredBatch, Violation


class Walk:
    """How far one log was looked at, and the last batch of each of its producers up to there."""

    def __init__(self) -> None:
        self.count = 0
        self.last: StoredBatch | None = None
        self.of_producers: dict[int, StoredBatch] = {}


class ProducerSequences:
    def __init__(self) -> None:
        self._walks: dict[tuple[int, int, PartitionKey], Walk] = {}

    def check(self, seen: Observation) -> None:
        for key, replica in seen.all_replicas():
            log = replica.partition.log
            if log.failure is not None or log.local_start_offset > 0:
                continue  # who began in the middle does not know what producers had sent before
            place = (replica.node_id, replica.life, key)
            walk, batches = self._walks.setdefault(place, Walk()), replica.content.batches
            if walk.count > len(batches) or (walk.count and batches[walk.count - 1] is not walk.last):
                walk = self._walks[place] = Walk()  # it was cut
            committed = seen.committed.get(key)
            deleted_end = 0 if committed is None else committed.deleted_end
            for batch in batches[walk.count :]:
                self._take(replica, walk.of_producers, batch, deleted_end)
            walk.count, walk.last = len(batches), batches[-1] if batches else None

    @staticmethod
    def _take(replica: Replica, of_producers: dict[int, StoredBatch], batch: StoredBatch, deleted_end: int) -> None:
        """`deleted_end`: a leader deleted everything before it, and may have forgotten a producer that had written
        nothing else; a crash may take the deletion back in this log."""
        if batch.producer_id < 0 or batch.base_sequence < 0:
            return
        # A coordinator writes every batch of a producer's transaction with sequence 0.
        is_of_coordinator = replica.partition.topic == GROUP_METADATA_TOPIC
        before = of_producers.get(batch.producer_id)
        if before is not None and before.last_offset >= deleted_end:
            is_next = batch.producer_epoch == before.producer_epoch and (
                batch.base_sequence == (before.last_sequence + 1) & SEQUENCE_MAX
            )
            begins = batch.producer_epoch > before.producer_epoch and batch.base_sequence == 0
            is_epoch_kept = is_of_coordinator and batch.producer_epoch == before.producer_epoch
            may_be_cleaned = replica.is_compacted and batch.producer_epoch >= before.producer_epoch
            if not (is_next or begins or is_epoch_kept or may_be_cleaned):
                raise Violation(
                    f"{replica}: producer {batch.producer_id} goes from {place_of(before)} to {place_of(batch)}"
                )
        of_producers[batch.producer_id] = batch


def place_of(batch: StoredBatch) -> str:
    return (
        f"epoch {batch.producer_epoch} sequence {batch.base_sequence}..{batch.last_sequence}"
        f" at offset {batch.base_offset}"
    )
