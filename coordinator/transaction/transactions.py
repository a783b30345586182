"""The transactional ids of one partition of `__transaction_state`, each with its committed state and its pending
record, as the steps of the transaction coordinator's machine read and change them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from moldau.coordinator.runtime.machine import Waiter
from moldau.coordinator.runtime.step import ReplyWhenCommitted, Step, Timers, UncommittedChanges, write_error
from moldau.coordinator.transaction.events import ProducerIdAnswer, SendMarkers, TopicPartition, TransactionConfig
from moldau.coordinator.transaction.records import TransactionChange
from moldau.coordinator.transaction.table import PENDING, StateAndClaim
from moldau.coordinator.transaction.transaction import DEAD, FORMER_STATES, ONGOING, PREPARE_COMMIT, Transaction
from moldau.protocol.errors import ErrorCode


class TransactionTimer(Enum):
    ABORTS = auto()
    """The timer of the next search for transactions that have timed out."""
    EXPIRY = auto()
    """The timer of the next search for transactional ids that have expired."""
    COMPLETION = auto()
    """The timer of the next attempt to write the record that completes a transaction."""


class TransactionTimerKey(NamedTuple):
    kind: TransactionTimer
    transactional_id: str = ""


@dataclass(slots=True)
class Completion:
    """A transaction in a prepared state whose markers are being written."""

    command: SendMarkers
    partitions_left: set[TopicPartition]
    """The partitions whose markers have not been reported yet."""


class Transactions:
    """All transactional ids of a partition of `__transaction_state`.

    Each id has at most one pending record. Until it is committed, other requests that would change the transaction are
    answered with CONCURRENT_TRANSACTIONS.
    """

    def __init__(self) -> None:
        self.committed: dict[str, Transaction] = {}
        """The committed state by transactional id. Readers see it, and the next state is made from it."""
        self.ongoing: dict[str, None] = {}
        """The transactional ids whose committed state is Ongoing, in the order in which their transactions began."""
        self.completions: dict[str, Completion] = {}
        """The transactions whose markers are being written, by transactional id. The committed state of each is a
        prepared state."""
        self._unsent: dict[str, None] = {}
        """The transactional ids in a prepared state for which no command to write markers was given yet."""
        self._commands = 0
        self._changes: UncommittedChanges[TransactionChange] = UncommittedChanges()
        self._pending: set[str] = set()

    def state_or_pending(self, transactional_id: str) -> StateAndClaim:
        """The row of the decision table for a transactional id: PENDING while a record of the id is not committed,
        otherwise the id's committed state."""
        if transactional_id in self._pending:
            return PENDING
        return self.committed_state(transactional_id)

    def committed_state(self, transactional_id: str) -> StateAndClaim:
        """The committed state of a transactional id; DEAD if the id does not exist."""
        transaction = self.committed.get(transactional_id)
        return DEAD if transaction is None else transaction.state

    def append(self, change: TransactionChange, end_offset: int) -> None:
        """Note a record that was appended and not committed, whose batch ends at `end_offset`."""
        assert change.transactional_id not in self._pending, "one record of a transactional id is pending"
        # DIVERGES: after a timeout Apache Kafka returns to the former state, which differs from its log if the record
        # is committed later. Here the transactional id waits until the record is committed.
        self._pending.add(change.transactional_id)
        self._changes.add(change, end_offset)

    def commit(self, committed_end_offset: int) -> None:
        for change in self._changes.pop_committed(committed_end_offset):
            self._pending.remove(change.transactional_id)
            before = self.committed_state(change.transactional_id)
            after = DEAD if change.value is None else change.value.state
            assert before in FORMER_STATES[after], f"{change.transactional_id!r} goes from {before} to {after}"
            self.apply(change)

    def apply(self, change: TransactionChange) -> None:
        """Apply a committed record to the states."""
        transactional_id, transaction = change
        self.ongoing.pop(transactional_id, None)
        self._unsent.pop(transactional_id, None)
        self.completions.pop(transactional_id, None)
        if transaction is None:
            self.committed.pop(transactional_id, None)
            return
        self.committed[transactional_id] = transaction
        if transaction.state is ONGOING:
            self.ongoing[transactional_id] = None
        elif transaction.is_prepared:
            self._unsent[transactional_id] = None

    def take_unsent_markers(self, coordinator_epoch: int) -> Iterator[SendMarkers]:
        """Yield the command for the markers of each transaction that was prepared since the last call. Each transaction
        gets an entry in `completions`."""
        unsent, self._unsent = self._unsent, {}
        for transactional_id in unsent:
            self._commands += 1
            transaction = self.committed[transactional_id]
            command = markers_of(transactional_id, transaction, coordinator_epoch, self._commands)
            self.completions[transactional_id] = Completion(command, set(transaction.partitions))
            yield command


@dataclass(slots=True)
class TransactionStep(Step[TransactionChange]):
    config: TransactionConfig
    transactions: Transactions
    timers: Timers[TransactionTimerKey]
    coordinator_epoch: int
    """The leader epoch of the partition of `__transaction_state`."""
    next_producer_id: Callable[[], int | None]
    """Returns a producer id that no producer has had; None while the broker waits for a block of producer ids."""

    def store(self, transactional_id: str, transaction: Transaction) -> None:
        """Write the next state of a transactional id."""
        self.write(TransactionChange(transactional_id, transaction))

    def answer_when_committed(self, waiter: Waiter, answer: ProducerIdAnswer) -> None:
        """Send `answer` when the records of this step are committed, or the error if the log refuses them."""
        self.when_committed(ReplyWhenCommitted(waiter, answer, producer_refused_by_the_log))

    def note(self, transactional_id: str, text: str) -> None:
        """Add a note about a transactional id for the operator's log."""
        self.notes.append(f"transactional id {transactional_id!r}: {text}")


def producer_refused_by_the_log(error: ErrorCode) -> ProducerIdAnswer:
    return ProducerIdAnswer(write_error(error))


def markers_of(transactional_id: str, transaction: Transaction, coordinator_epoch: int, number: int) -> SendMarkers:
    return SendMarkers(
        transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        coordinator_epoch,
        transaction.state is PREPARE_COMMIT,
        tuple(sorted(transaction.partitions)),
        transaction.client_version,
        number,
    )
