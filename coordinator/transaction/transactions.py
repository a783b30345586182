"""The transactional ids of one partition: each as committed, and as its next record has it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from coordinator.runtime.pairs import PendingChanges
from coordinator.transaction.events import SendMarkers, TopicPartition
from coordinator.transaction.records import TransactionChange
from coordinator.transaction.table import PENDING, Standing
from coordinator.transaction.transaction import Transaction
from coordinator.transaction.transaction_state import DEAD, FORMER_STATES, ONGOING, PREPARE_COMMIT


@dataclass(slots=True)
class Completion:
    """A committed outcome whose markers are being written."""

    command: SendMarkers
    partitions_left: set[TopicPartition]
    """Partitions whose marker is not reported yet."""


class Transactions:
    """Of each transactional id at most one record is pending: a request that meets one waits."""

    def __init__(self) -> None:
        self.committed: dict[str, Transaction] = {}
        """What readers see, and what a transition starts from."""
        self.ongoing: dict[str, None] = {}
        """The transactional ids whose committed state is Ongoing, in the order in which they came into it."""
        self.completions: dict[str, Completion] = {}
        """By transactional id; its committed state is prepared."""
        self._unsent: dict[str, None] = {}
        """Transactional ids whose committed state is prepared, and whose markers nothing was commanded about."""
        self._commands = 0
        self._changes: PendingChanges[TransactionChange] = PendingChanges()
        self._pending: set[str] = set()

    def standing(self, transactional_id: str) -> Standing:
        """The row of the table: the state, or that a record is pending."""
        if transactional_id in self._pending:
            return PENDING
        return self.committed_standing(transactional_id)

    def committed_standing(self, transactional_id: str) -> Standing:
        """The state that readers see."""
        transaction = self.committed.get(transactional_id)
        return DEAD if transaction is None else transaction.state

    def append(self, change: TransactionChange, end_offset: int) -> None:
        """A record is in the log; its batch ends at `end_offset`."""
        assert change.transactional_id not in self._pending, "one record of a transactional id is pending"
        # DIVERGES: Apache goes back to the former state after a timeout, and has another state than its log once the
        # record is committed nevertheless. Here the transactional id waits until the record is committed.
        self._pending.add(change.transactional_id)
        self._changes.add(change, end_offset)

    def commit(self, committed_end_offset: int) -> None:
        for change in self._changes.take_committed(committed_end_offset):
            self._pending.remove(change.transactional_id)
            before = self.committed_standing(change.transactional_id)
            after = DEAD if change.value is None else change.value.state
            assert before in FORMER_STATES[after], f"{change.transactional_id!r} goes from {before} to {after}"
            self.apply(change)

    def apply(self, change: TransactionChange) -> None:
        """A record is committed."""
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

    def take_unsent(self, coordinator_epoch: int) -> Iterator[SendMarkers]:
        """The commands for the transactions that were prepared since the last call; each has a completion from now
        on."""
        unsent, self._unsent = self._unsent, {}
        for transactional_id in unsent:
            self._commands += 1
            transaction = self.committed[transactional_id]
            command = markers_of(transactional_id, transaction, coordinator_epoch, self._commands)
            self.completions[transactional_id] = Completion(command, set(transaction.partitions))
            yield command


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
