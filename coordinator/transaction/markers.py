"""The markers of a transaction: sent once its outcome is committed; its completion is stored once all are written."""

from __future__ import annotations

from typing import Final, NamedTuple

from coordinator.transaction.events import MarkersWritten, SendMarkers
from coordinator.transaction.step import TransactionStep, TransactionTimer, TransactionTimerKey
from coordinator.transaction.table import PENDING
from coordinator.transaction.transaction import Transaction, completed
from coordinator.transaction.transaction_state import PREPARE_COMMIT
from protocol.errors import ErrorCode

COMPLETION_RETRY_MS: Final = 100
"""The time until a completion is stored again that the log has refused."""


class CompletionStored(NamedTuple):
    """The outcome of a completion. No client waits for it."""

    transactional_id: str

    def committed(self, step: TransactionStep) -> None:
        pass

    def failed(self, step: TransactionStep, error: ErrorCode) -> None:
        if error is not ErrorCode.REQUEST_TIMED_OUT:  # after which the record may yet be committed
            key = TransactionTimerKey(TransactionTimer.COMPLETION, self.transactional_id)
            step.timers.schedule(key, step.now_ms + COMPLETION_RETRY_MS)


def send_markers(step: TransactionStep) -> None:
    """Command the markers of every transaction that was prepared since the last call."""
    for transactional_id, transaction in step.transactions.take_unsent():
        if transaction.partitions:
            step.command(markers_of(transactional_id, transaction, step.coordinator_epoch))
        else:
            complete(step, transactional_id)


def markers_of(transactional_id: str, transaction: Transaction, coordinator_epoch: int) -> SendMarkers:
    return SendMarkers(
        transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        coordinator_epoch,
        transaction.state is PREPARE_COMMIT,
        tuple(sorted(transaction.partitions)),
        transaction.client_version,
    )


def markers_written(step: TransactionStep, event: MarkersWritten) -> None:
    """A report about another transaction of the transactional id, or to an earlier coordinator, counts for nothing."""
    completion = step.transactions.completions.get(event.transactional_id)
    if completion is None or event.coordinator_epoch != step.coordinator_epoch:
        return
    transaction = step.transactions.committed[event.transactional_id]
    if (event.producer_id, event.producer_epoch) != (transaction.producer_id, transaction.producer_epoch):
        return
    if not completion.partitions_left:
        return
    completion.partitions_left -= event.partitions
    if not completion.partitions_left:
        complete(step, event.transactional_id)


def complete(step: TransactionStep, transactional_id: str) -> None:
    """Every partition has its marker: store that."""
    completion = step.transactions.completions.get(transactional_id)
    if completion is None or completion.partitions_left or step.transactions.standing(transactional_id) is PENDING:
        return
    step.store(transactional_id, completed(step.transactions.committed[transactional_id], step.wall_ms))
    step.when_committed(CompletionStored(transactional_id))
