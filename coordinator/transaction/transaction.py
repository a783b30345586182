"""The state of a transactional id: its states, its value, and a function for each transition to the next value.

A transactional id belongs to one producer at a time: a producer id and an epoch. The producer that asks last
(InitProducerId) has the highest epoch, and fences all earlier ones. It runs one transaction after the other:

         partitions added
                ┌──┐
    ──▶ Empty ─▶ Ongoing ──EndTxn: commit───────────────────────▶ PrepareCommit ──markers──▶ CompleteCommit
          │        └───────EndTxn: abort, new producer, timeout─▶ PrepareAbort ───markers──▶ CompleteAbort
          └────────────────an abort without partitions─────────────────▲

From both complete states a transaction begins as from Empty: added partitions lead to Ongoing, an abort without
partitions to PrepareAbort, and InitProducerId to Empty.

* **Empty**: a producer owns the id and has not begun a transaction.
* **Ongoing**: the transaction has partitions.
* **PrepareCommit, PrepareAbort**: the outcome is decided. From the commit of this record on it does not change, and the
  leader of each partition is sent a marker.
* **CompleteCommit, CompleteAbort**: every partition has its marker.
* **Dead**: the transactional id does not exist: it was never used, or has expired. No record has this state.
* **PrepareEpochFence**: a state of Apache Kafka's memory while it fences a producer. No record has it, and no
  transaction here: a fence goes from Ongoing to PrepareAbort in one step.

A transition is a record. While that is not committed, and while markers are being written, every request that would
change the transaction is answered with CONCURRENT_TRANSACTIONS, and its client tries again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from moldau.coordinator.transaction.events import EPOCH_BUMP_VERSION, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition


class TransactionState(Enum):
    """The states of a transactional id. The values are the status codes of records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7


(EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT, DEAD, PREPARE_EPOCH_FENCE) = (
    TransactionState
)
NAMES: Final[Mapping[TransactionState, str]] = {
    EMPTY: "Empty",
    ONGOING: "Ongoing",
    PREPARE_COMMIT: "PrepareCommit",
    PREPARE_ABORT: "PrepareAbort",
    COMPLETE_COMMIT: "CompleteCommit",
    COMPLETE_ABORT: "CompleteAbort",
    DEAD: "Dead",
    PREPARE_EPOCH_FENCE: "PrepareEpochFence",
}
"""Kafka's names of the states in the protocol."""
FORMER_STATES: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {
    EMPTY: frozenset({DEAD, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}),
    ONGOING: frozenset({EMPTY, ONGOING, COMPLETE_COMMIT, COMPLETE_ABORT}),
    PREPARE_COMMIT: frozenset({ONGOING}),
    PREPARE_ABORT: frozenset({EMPTY, ONGOING, COMPLETE_COMMIT, COMPLETE_ABORT}),
    COMPLETE_COMMIT: frozenset({PREPARE_COMMIT}),
    COMPLETE_ABORT: frozenset({PREPARE_ABORT}),
    DEAD: frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}),
    PREPARE_EPOCH_FENCE: frozenset(),
}
"""For each state, the states from which a transactional id may move into it."""
COMPLETED_STATES: Final[Mapping[TransactionState, TransactionState]] = {
    PREPARE_COMMIT: COMPLETE_COMMIT,
    PREPARE_ABORT: COMPLETE_ABORT,
}
"""The state that a prepared transaction enters when every partition has its marker."""


def unknown_states(state_filters: Iterable[str]) -> list[str]:
    """The state filters of a ListTransactions that match no state name."""
    return [name for name in state_filters if name not in NAMES.values()]


EPOCH_MAX: Final = 0x7FFF
LAST_EPOCH: Final = EPOCH_MAX - 1
"""The last epoch of a producer id that a client can get.

One higher epoch is reserved for fencing the producer that has this epoch.
"""
NO_TIME: Final = -1


class Transaction(NamedTuple):
    """The state of a transactional id: the fields of its record, and `last_epoch`."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    updated_ms: int
    """The wall-clock time (ms) of the last record. The transaction began at `start_ms`, which is a wall-clock time
    too."""
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIME
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id before the last transition."""
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id that becomes current when the transaction is completed, if the epochs of `producer_id` are used
    up (protocol 2)."""
    last_epoch: int = NO_PRODUCER_EPOCH
    """The producer's epoch before the current one.

    It is in no record: a new coordinator does not know it, and fences a producer that repeats an InitProducerId.
    """
    client_version: int = 0
    """The protocol version of the client that added partitions to the transaction, or ended it."""

    @property
    def is_exhausted(self) -> bool:
        """Whether the epochs of the producer id that clients can get are used up."""
        return self.producer_epoch >= LAST_EPOCH

    @property
    def is_prepared(self) -> bool:
        return self.state is PREPARE_COMMIT or self.state is PREPARE_ABORT


def new_transaction(producer_id: int, timeout_ms: int, wall_ms: int) -> Transaction:
    """The state Empty of a new transactional id, with epoch 0."""
    return Transaction(producer_id, 0, timeout_ms, EMPTY, wall_ms, previous_producer_id=producer_id)


def with_next_epoch(before: Transaction, timeout_ms: int, wall_ms: int, *, goes_on: bool) -> Transaction:
    """The state Empty in which the producer has the next epoch.

    `goes_on` means that the producer continues after an error: it had the current epoch, and may repeat its request.
    """
    return as_empty_transaction(before, timeout_ms, wall_ms)._replace(
        producer_epoch=before.producer_epoch + 1,
        last_epoch=before.producer_epoch if goes_on else NO_PRODUCER_EPOCH,
    )


def with_new_producer_id(
    before: Transaction, producer_id: int, timeout_ms: int, wall_ms: int, *, goes_on: bool
) -> Transaction:
    """The state Empty with a new producer id, because the epochs of the former id are used up."""
    return as_empty_transaction(before, timeout_ms, wall_ms)._replace(
        producer_id=producer_id,
        producer_epoch=0,
        last_epoch=before.producer_epoch if goes_on else NO_PRODUCER_EPOCH,
    )


def as_empty_transaction(before: Transaction, timeout_ms: int, wall_ms: int) -> Transaction:
    """The state Empty with the same producer id and epoch, after a repeated InitProducerId."""
    return before._replace(
        state=EMPTY,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        start_ms=NO_TIME,
        updated_ms=wall_ms,
        previous_producer_id=before.producer_id,
    )


def with_partitions(
    before: Transaction, partitions: frozenset[TopicPartition], client_version: int, wall_ms: int
) -> Transaction:
    """The state Ongoing with these partitions added to the transaction."""
    return before._replace(
        state=ONGOING,
        partitions=before.partitions | partitions,
        start_ms=before.start_ms if before.state is ONGOING else wall_ms,
        updated_ms=wall_ms,
        previous_producer_id=before.producer_id,
        client_version=client_version,
    )


def as_prepared_transaction(
    before: Transaction, *, is_commit: bool, client_version: int, next_producer_id: int, wall_ms: int
) -> Transaction:
    """The state PrepareCommit or PrepareAbort. If `client_version` is 2, the producer epoch increases."""
    is_bumped = client_version >= EPOCH_BUMP_VERSION
    return before._replace(
        state=PREPARE_COMMIT if is_commit else PREPARE_ABORT,
        producer_epoch=min(before.producer_epoch + 1, EPOCH_MAX) if is_bumped else before.producer_epoch,
        last_epoch=before.producer_epoch if is_bumped else before.last_epoch,
        start_ms=before.start_ms if before.state is ONGOING else wall_ms,
        next_producer_id=next_producer_id,
        updated_ms=wall_ms,
        previous_producer_id=before.producer_id,
        client_version=client_version,
    )


def as_fenced_transaction(before: Transaction, wall_ms: int) -> Transaction:
    """The state PrepareAbort with a higher producer epoch, so that the producer of a transaction of protocol 1 is
    fenced."""
    above = before._replace(
        producer_epoch=min(before.producer_epoch + 1, EPOCH_MAX),
        last_epoch=NO_PRODUCER_EPOCH,
    )
    return as_prepared_transaction(
        above, is_commit=False, client_version=0, next_producer_id=NO_PRODUCER_ID, wall_ms=wall_ms
    )


def as_completed_transaction(before: Transaction, wall_ms: int) -> Transaction:
    """The state CompleteCommit or CompleteAbort, after every partition got its marker."""
    moves_on = before.client_version >= EPOCH_BUMP_VERSION and before.next_producer_id != NO_PRODUCER_ID
    return before._replace(
        state=COMPLETED_STATES[before.state],
        producer_id=before.next_producer_id if moves_on else before.producer_id,
        producer_epoch=0 if moves_on else before.producer_epoch,
        next_producer_id=NO_PRODUCER_ID,
        partitions=frozenset(),
        updated_ms=wall_ms,
        previous_producer_id=before.producer_id,
    )
