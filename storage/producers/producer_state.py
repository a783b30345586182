"""The producer state of a log, by which a batch is accepted once, in order, and only from the newest epoch of its
producer.

For each producer id the last five batches are remembered, because a client may have five requests in flight and send
any of them again. The decision about a data batch from a client, with `last` the last sequence accepted in the known
epoch (-1 for none):

| producer id | epoch                | sequence                    | decision                                          |
|-------------|----------------------|-----------------------------|---------------------------------------------------|
| unknown     | any                  | any                         | accepted: its state may have expired              |
| known       | below the known one  | any                         | INVALID_PRODUCER_EPOCH                            |
| known       | above the known one  | 0                           | accepted: a new epoch                             |
| known       | above the known one  | other                       | OUT_OF_ORDER_SEQUENCE_NUMBER; accepted if the     |
|             |                      |                             | known epoch is -1                                 |
| known       | the known one        | last + 1 (wrapping to 0)    | accepted                                          |
| known       | the known one        | those of a remembered batch | duplicate: answered with the offsets of that batch|
| known       | the known one        | other                       | OUT_OF_ORDER_SEQUENCE_NUMBER                      |

A batch outside of transactions while the producer has a transaction open in this log is refused with INVALID_TXN_STATE.
A transactional batch that would open a transaction needs a guard (`verification.py`), and obeys further rules:

| what                                                             | decision                                    |
|------------------------------------------------------------------|---------------------------------------------|
| repeats a remembered batch                                       | duplicate, whatever else holds              |
| epoch below the known one                                        | INVALID_PRODUCER_EPOCH                      |
| the transaction is not open in this epoch, the guard not noted   | INVALID_TXN_STATE                           |
| under transaction.version 2, nothing is remembered of the        | OUT_OF_ORDER_SEQUENCE_NUMBER                |
| producer, first sequence other than 0                            |                                             |
| first sequence above the lowest one that waits for verification  | OUT_OF_ORDER_SEQUENCE_NUMBER                |
| otherwise                                                        | as in the first table                       |

A marker is a control batch that ends a transaction. The known epoch is that of its producer in this log:

| producer epoch                 | transaction version 0, 1 | transaction version 2                               |
|--------------------------------|--------------------------|-----------------------------------------------------|
| below the known one            | INVALID_PRODUCER_EPOCH   | INVALID_PRODUCER_EPOCH                              |
| the known one, none is open    | accepted                 | accepted: the coordinator sends it again            |
| the known one, one is open     | accepted                 | INVALID_PRODUCER_EPOCH: it ended the former         |
|                                |                          | transaction (KIP-1228); accepted at the last epoch, |
|                                |                          | which has no next one                               |
| above the known one            | accepted                 | accepted                                            |

A marker with an accepted epoch but a coordinator epoch below the known one is refused with
TRANSACTION_COORDINATOR_FENCED. A marker moves the producer's epoch to its own.

Followers and recovery accept every batch that the leader accepted, without a decision. Open transactions are noted with
their first offsets: the last stable offset does not go past the earliest of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from struct import Struct
from typing import Final, NamedTuple

from moldau.protocol.control_records import ControlRecordType, control_record_type, coordinator_epoch_of
from moldau.protocol.errors import ErrorCode
from moldau.protocol.primitives import BytesLike
from moldau.protocol.record_batch import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    SEQUENCE_MAX,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from moldau.protocol.record_reader import records_of
from moldau.storage.producers.verification import NOT_REQUIRED, VerificationGuard, Verifications
from moldau.storage.segment.transaction_index import AbortedTransaction

BATCHES_KEPT = 5
NO_OFFSET = -1
NO_COORDINATOR_EPOCH = -1
PRODUCER_EXPIRATION_MS = 86_400_000
EPOCH_MAX = 32_767
EPOCH_BUMP_VERSION = 2
"""From this transaction.version on, each marker increases the producer's epoch."""

ACCEPTED = ErrorCode.NONE
_new_tuple = tuple.__new__  # This is what the constructor of a named tuple calls, at half the cost.


class ProducerBatch(NamedTuple):
    """One remembered batch of a producer: its sequences, by which a duplicate is recognized, and its offsets, with
    which the duplicate is answered."""

    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerEntry:
    """The state of one producer id: its epoch, its last batches, and its open transaction."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "last_sequence",
        "last_timestamp",
        "open_transaction_offset",
        "producer_epoch",
        "producer_id",
    )

    def __init__(self, producer_id: int, producer_epoch: int = NO_PRODUCER_EPOCH) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.batches: list[ProducerBatch] = []
        self.last_sequence = NO_SEQUENCE
        self.last_timestamp = -1
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.open_transaction_offset = NO_OFFSET

    def note_batch(self, epoch: int, batch: ProducerBatch) -> None:
        """Remember a batch of this producer. If there are more than `BATCHES_KEPT`, the oldest one is forgotten."""
        if epoch != self.producer_epoch:
            self.change_epoch(epoch)
        batches = self.batches
        if len(batches) == BATCHES_KEPT:
            del batches[0]
        batches.append(batch)
        self.last_sequence = batch.last_sequence
        self.last_timestamp = batch.timestamp

    def change_epoch(self, epoch: int) -> None:
        """Set the producer's epoch. Sequences restart, so no earlier batch can be a duplicate."""
        if epoch != self.producer_epoch:
            self.producer_epoch = epoch
            self.batches.clear()
            self.last_sequence = NO_SEQUENCE

    def duplicate_of(self, epoch: int, first_sequence: int, last_sequence: int) -> ProducerBatch | None:
        """The remembered batch with this epoch and these sequences; None if there is none."""
        if epoch == self.producer_epoch:
            for batch in self.batches:
                if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
                    return batch
        return None


class TransactionMarker(NamedTuple):
    """The content of a control batch that ends a transaction."""

    is_commit: bool
    coordinator_epoch: int


class CompletedTransaction(NamedTuple):
    """A transaction whose marker is in the log."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of the marker."""
    is_aborted: bool


class ProducerStates:
    """The producers of one log, and their transactions.

    A transaction is open until its marker is appended, and undecided until the marker is below the high watermark: a
    marker that is not replicated yet may be truncated again. Until a transaction is decided, the last stable offset
    does not pass its first offset.
    """

    __slots__ = (
        "_open_transactions",
        "entries",
        "expiration_ms",
        "map_end_offset",
        "undecided_transactions",
        "verifications",
    )

    def __init__(self, expiration_ms: int = PRODUCER_EXPIRATION_MS) -> None:
        self.expiration_ms = expiration_ms
        self.entries: dict[int, ProducerEntry] = {}
        self.map_end_offset = 0
        """The end (exclusive) of the part of the log that this state covers."""
        self.verifications = Verifications()
        self._open_transactions: dict[int, int] = {}  # Producer id by first offset, ascending.
        self.undecided_transactions: dict[int, CompletedTransaction] = {}
        """The transactions with a marker at or above the high watermark, by first offset, in ascending order of last
        offset.
        """

    # The decision

    def check_batch(self, header: BatchHeader) -> ErrorCode | ProducerBatch:
        """Decide about a client's batch. The result NONE accepts it, another error refuses it, and a `ProducerBatch` is
        the remembered batch of which it is a duplicate. Changes nothing."""
        entry = self.entries.get(header.producer_id)
        if entry is None:
            return ACCEPTED
        epoch = header.producer_epoch
        first_sequence = header.base_sequence
        # The usual case first: the next batch of a known producer in its epoch.
        if epoch == entry.producer_epoch:
            if first_sequence == (entry.last_sequence + 1) & SEQUENCE_MAX:
                if entry.open_transaction_offset != NO_OFFSET and not header.attributes & TRANSACTIONAL_BIT:
                    return ErrorCode.INVALID_TXN_STATE
                return ACCEPTED
            last_sequence = (first_sequence + header.last_offset_delta) & SEQUENCE_MAX
            return entry.duplicate_of(epoch, first_sequence, last_sequence) or ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if epoch < entry.producer_epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if first_sequence != 0 and entry.producer_epoch != NO_PRODUCER_EPOCH:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        return self._check_kind(header, entry)

    def check_transactional_batch(
        self, header: BatchHeader, guard: VerificationGuard | None, *, is_from_client: bool
    ) -> ErrorCode | ProducerBatch:
        """Decide about a batch of a transaction, or about any batch while a transaction is being verified. The result
        is that of `check_batch`.

        `guard`: the guard that `Verifications.begin_verification` returned for the batch; `NOT_REQUIRED` if
        transactions open without a verification. The sequences of coordinators' batches are not compared.
        """
        entry = self.entries.get(header.producer_id)
        epoch = header.producer_epoch
        first_sequence = header.base_sequence
        if entry is not None:
            if is_from_client:
                last_sequence = (first_sequence + header.last_offset_delta) & SEQUENCE_MAX
                duplicate = entry.duplicate_of(epoch, first_sequence, last_sequence)
                if duplicate is not None:
                    return duplicate
            if epoch < entry.producer_epoch:
                return ErrorCode.INVALID_PRODUCER_EPOCH
        noted = self.verifications.guards.get(header.producer_id)
        if (
            guard is not NOT_REQUIRED
            and header.attributes & TRANSACTIONAL_BIT
            and not self.has_open_transaction(header.producer_id, epoch)
            and (guard is None or guard is not noted)
        ):
            return ErrorCode.INVALID_TXN_STATE
        if not is_from_client:
            return ACCEPTED if entry is None else self._check_kind(header, entry)
        if noted is not None:
            if noted.supports_epoch_bump and first_sequence != 0 and (entry is None or not entry.batches):
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            if first_sequence > noted.lowest_sequence:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        return self.check_batch(header)

    @staticmethod
    def _check_kind(header: BatchHeader, entry: ProducerEntry) -> ErrorCode:
        if entry.open_transaction_offset != NO_OFFSET and not header.attributes & TRANSACTIONAL_BIT:
            return ErrorCode.INVALID_TXN_STATE
        return ACCEPTED

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether the producer has a transaction open in this log, in this producer epoch."""
        entry = self.entries.get(producer_id)
        return (
            entry is not None and entry.open_transaction_offset != NO_OFFSET and entry.producer_epoch == producer_epoch
        )

    def must_be_verified(self, header: BatchHeader) -> bool:
        """Whether the leader must verify a client's transactional batch with the transaction coordinator before the
        append. False if the producer's epoch is fenced, if the producer has a transaction open in this log, or if the
        batch is a duplicate. A batch counts as a duplicate here only if this log has a transaction marker of the
        producer: without one, an earlier batch was not in a transaction that has ended.

        DIVERGES: Apache Kafka asks the coordinator about each duplicate, also about one from a transaction that has
        ended. The guard of that question would refuse the next batch of the producer as out of order.
        """
        entry = self.entries.get(header.producer_id)
        if entry is None:
            return True
        epoch = header.producer_epoch
        if epoch < entry.producer_epoch or self.has_open_transaction(header.producer_id, epoch):
            return False
        if entry.coordinator_epoch == NO_COORDINATOR_EPOCH:
            return True
        last_sequence = (header.base_sequence + header.last_offset_delta) & SEQUENCE_MAX
        return entry.duplicate_of(epoch, header.base_sequence, last_sequence) is None

    def check_marker(self, header: BatchHeader, marker: TransactionMarker, transaction_version: int = 0) -> ErrorCode:
        """Decide about a transaction marker. Returns NONE, or the error if the marker has a wrong producer epoch or
        comes from a former transaction coordinator."""
        entry = self.entries.get(header.producer_id)
        if entry is None:
            return ErrorCode.NONE
        epoch = header.producer_epoch
        if epoch < entry.producer_epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if (
            transaction_version >= EPOCH_BUMP_VERSION
            and epoch == entry.producer_epoch
            and entry.open_transaction_offset != NO_OFFSET
            and epoch != EPOCH_MAX
        ):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if marker.coordinator_epoch < entry.coordinator_epoch:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        return ErrorCode.NONE

    # Batches that are in the log

    def apply_data_batch(self, header: BatchHeader, base_offset: int) -> None:
        """Note a data batch with a producer id that was appended at `base_offset`."""
        producer_id = header.producer_id
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(producer_id, header.producer_epoch)
        delta = header.last_offset_delta
        first_sequence = header.base_sequence
        if first_sequence != NO_SEQUENCE:
            batch = (
                first_sequence,
                (first_sequence + delta) & SEQUENCE_MAX,
                base_offset + delta,
                delta,
                header.max_timestamp,
            )
            entry.note_batch(header.producer_epoch, _new_tuple(ProducerBatch, batch))
        if header.attributes & TRANSACTIONAL_BIT:
            # Only the first batch of a transaction counts: it is where the last stable offset stays.
            if entry.open_transaction_offset == NO_OFFSET:
                entry.open_transaction_offset = base_offset
                self._open_transactions[base_offset] = producer_id
            self.verifications.drop_guard_after_append(header)

    def note_batches(self, producer_id: int, epoch: int, batches: Sequence[tuple[int, int, int, int, int]]) -> None:
        """Note data batches of one producer that are outside of transactions, in order.

        Each tuple in `batches` has the fields of a `ProducerBatch`.
        """
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(producer_id, epoch)
        for batch in batches:
            entry.note_batch(epoch, ProducerBatch(*batch))

    def apply_marker(self, header: BatchHeader, marker: TransactionMarker, offset: int) -> CompletedTransaction | None:
        """Apply a transaction marker that is at `offset`. Returns the transaction that the marker ended; None if the
        producer had none open."""
        self.verifications.drop_guard_after_append(header)
        entry = self.entries.get(header.producer_id)
        if entry is None:
            entry = self.entries[header.producer_id] = ProducerEntry(header.producer_id)
        # A marker may carry a newer epoch than the batches: the coordinator fences an earlier instance of the producer
        # with it.
        entry.change_epoch(header.producer_epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = header.max_timestamp
        first_offset, entry.open_transaction_offset = entry.open_transaction_offset, NO_OFFSET
        if first_offset == NO_OFFSET:
            return None
        self._open_transactions.pop(first_offset, None)
        completed = CompletedTransaction(header.producer_id, first_offset, offset, not marker.is_commit)
        self.undecided_transactions[first_offset] = completed
        return completed

    def replay(self, header: BatchHeader, marker: TransactionMarker | None) -> CompletedTransaction | None:
        """Apply a stored batch while the producer state is restored. Returns the transaction that the batch ended; None
        if it ended none."""
        completed = None
        if header.producer_id >= 0:
            if not header.attributes & CONTROL_BIT:
                self.apply_data_batch(header, header.base_offset)
            elif marker is not None:
                completed = self.apply_marker(header, marker, header.base_offset)
        self.map_end_offset = header.base_offset + header.last_offset_delta + 1
        return completed

    # Transactions

    def first_unstable_offset(self) -> int | None:
        """The first offset of the earliest transaction that is open or undecided; None if there is none."""
        if not self._open_transactions and not self.undecided_transactions:
            return None  # Every fetch asks this, and most logs have no open transaction.
        first = next(iter(self._open_transactions), None)
        undecided = min(self.undecided_transactions, default=None)
        return min((offset for offset in (first, undecided) if offset is not None), default=None)

    def oldest_transaction_timestamp(self) -> float:
        """The timestamp (ms) of the last batch in the oldest open transaction; infinity if no transaction is open."""
        for producer_id in self._open_transactions.values():
            return self.entries[producer_id].last_timestamp
        return inf

    def last_stable_offset_after(self, completed: CompletedTransaction) -> int:
        """The last stable offset once `completed` is decided, if no other open transaction has ended by then. The
        transaction index stores it."""
        open_offset = next((offset for offset in self._open_transactions if offset != completed.first_offset), None)
        return completed.last_offset + 1 if open_offset is None else open_offset

    def on_high_watermark(self, high_watermark: int) -> None:
        """Drop the undecided transactions that are decided now, because their markers are below the high watermark."""
        if not self.undecided_transactions:
            return
        decided: list[int] = []
        for first_offset, completed in self.undecided_transactions.items():
            if completed.last_offset >= high_watermark:
                break
            decided.append(first_offset)
        if len(decided) == len(self.undecided_transactions):
            self.undecided_transactions.clear()
            return
        for first_offset in decided:
            del self.undecided_transactions[first_offset]

    def transaction_aborted_by(
        self, producer_id: int, marker: TransactionMarker, offset: int
    ) -> AbortedTransaction | None:
        """The entry of the transaction index for the transaction that a marker at `offset` aborts; None if the marker
        commits one, or the producer has none open. Changes nothing."""
        entry = self.entries.get(producer_id)
        if marker.is_commit or entry is None or entry.open_transaction_offset == NO_OFFSET:
            return None
        return self.transaction_index_entry(
            CompletedTransaction(producer_id, entry.open_transaction_offset, offset, True)
        )

    def transaction_index_entry(self, completed: CompletedTransaction) -> AbortedTransaction:
        """The entry of the transaction index for an aborted transaction."""
        return AbortedTransaction(
            completed.producer_id,
            completed.first_offset,
            completed.last_offset,
            self.last_stable_offset_after(completed),
        )

    # Expiring and restoring

    def expire_producers(self, now_ms: int) -> list[int]:
        """Remove the producers that have no open transaction and whose last batch is at least producer.id.expiration.ms
        old. Returns their ids. Verification guards expire after the same time."""
        self.verifications.expire_guards(now_ms, self.expiration_ms)
        expired = [producer_id for producer_id, entry in self.entries.items() if self.is_expired(entry, now_ms)]
        for producer_id in expired:
            del self.entries[producer_id]
        return expired

    def is_expired(self, entry: ProducerEntry, now_ms: int) -> bool:
        """Whether a producer has expired: it has no open transaction, and its last batch is producer.id.expiration.ms
        old by its largest timestamp, as in Kafka."""
        return entry.open_transaction_offset == NO_OFFSET and now_ms - entry.last_timestamp >= self.expiration_ms

    def restore(self, entries: list[ProducerEntry], end_offset: int, now_ms: int) -> None:
        """Replace the state by the producers of a snapshot at `end_offset`, without those that have expired since."""
        self.clear(end_offset)
        for entry in entries:
            if not self.is_expired(entry, now_ms):
                self.entries[entry.producer_id] = entry
        open_entries = [entry for entry in self.entries.values() if entry.open_transaction_offset != NO_OFFSET]
        for entry in sorted(open_entries, key=lambda each: each.open_transaction_offset):
            self._open_transactions[entry.open_transaction_offset] = entry.producer_id

    def take_over(self, restored: ProducerStates) -> None:
        """Replace the state by that of `restored`, an object that is not used any more."""
        self.clear(restored.map_end_offset)
        self.entries.update(restored.entries)
        self._open_transactions.update(restored._open_transactions)
        self.undecided_transactions.update(restored.undecided_transactions)

    def clear(self, end_offset: int) -> None:
        """Reset the state to that of an empty log that begins at `end_offset`."""
        self.entries.clear()
        self._open_transactions.clear()
        self.undecided_transactions.clear()
        self.map_end_offset = end_offset


USUAL_MARKER: Final = Struct(">i5shhchic")
"""The end of a marker batch as coordinators write it: the count of records, then one record whose fields have fixed
sizes.

The record has no headers, deltas of 0, a key of 4 bytes and a value of 6.
"""
COUNT_POSITION: Final = HEADER_SIZE - 4
USUAL_MARKER_SIZE: Final = COUNT_POSITION + USUAL_MARKER.size
USUAL_MARKER_BEFORE_KEY: Final = b"\x20\0\0\0\x08"
"""The bytes of a usual marker before the key: the size of the record, no attributes, both deltas, the
size of the key."""
USUAL_MARKER_BEFORE_VALUE: Final = b"\x0c"
"""The byte of a usual marker before the value: the size of the value."""
NO_HEADERS: Final = b"\0"
ABORT: Final = int(ControlRecordType.ABORT)
COMMIT: Final = int(ControlRecordType.COMMIT)


def read_transaction_marker(batch: BytesLike) -> TransactionMarker | None:
    """Read the transaction marker in a control batch; None if it is another kind of control batch.

    Raises `MalformedMessage` if the record cannot be read.
    """
    if len(batch) == USUAL_MARKER_SIZE and not batch[ATTRIBUTES_POSITION + 1] & CODEC_MASK:
        count, before_key, key_version, kind, before_value, version, epoch, after = USUAL_MARKER.unpack_from(
            batch, COUNT_POSITION
        )
        is_usual = (count, before_key, before_value, after) == (
            1,
            USUAL_MARKER_BEFORE_KEY,
            USUAL_MARKER_BEFORE_VALUE,
            NO_HEADERS,
        )
        if is_usual and key_version >= 0 and version >= 0 and kind in (ABORT, COMMIT):
            return TransactionMarker(kind == COMMIT, epoch)
    for record in records_of(batch):
        kind = control_record_type(record.key)
        if kind in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
            return TransactionMarker(kind is ControlRecordType.COMMIT, coordinator_epoch_of(record.value))
        return None
    return None
