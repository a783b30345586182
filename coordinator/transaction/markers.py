"""The markers of a transaction.

They are sent once its outcome is committed; the completion is stored once all of them are written.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from moldau.coordinator.transaction.events import MarkersWritten
from moldau.coordinator.transaction.step import TransactionStep, TransactionTimer, TransactionTimerKey
from moldau.coordinator.transaction.table import PENDING
from moldau.coordinator.transaction.transaction import completed
from moldau.protocol.errors import ErrorCode

COMPLETION_RETRY_MS: Final = 100
"""The time (ms) after which a completion that the log refused is stored again."""


class CompletionStored(NamedTuple):
    """The outcome of the record of a completion. No client waits for it."""

    transactional_id: str

    def committed(self, step: TransactionStep) -> None:
        pass

    def failed(self, step: TransactionStep, error: ErrorCode) -> None:
        if error is not ErrorCode.REQUEST_TIMED_OUT:  # After this error the record may still be committed.
            key = TransactionTimerKey(TransactionTimer.COMPLETION, self.transactional_id)
            step.timers.schedule(key, step.now_ms + COMPLETION_RETRY_MS)


def send_markers(step: TransactionStep) -> None:
    """Command the markers of every transaction that was prepared since the last call."""
    for command in step.transactions.take_unsent(step.coordinator_epoch):
        if command.partitions:
            step.command(command)
        else:
            complete(step, command.transactional_id)


def markers_written(step: TransactionStep, event: MarkersWritten) -> None:
    """Count the reported markers. A report of another command than the current one is ignored."""
    transactional_id = event.command.transactional_id
    completion = step.transactions.completions.get(transactional_id)
    if completion is None or completion.command != event.command or not completion.partitions_left:
        return
    completion.partitions_left -= event.partitions
    complete(step, transactional_id)


def complete(step: TransactionStep, transactional_id: str) -> None:
    """Store the completion of the transaction if every partition has its marker."""
    completion = step.transactions.completions.get(transactional_id)
    if completion is None or completion.partitions_left or step.transactions.standing(transactional_id) is PENDING:
        return
    step.store(transactional_id, completed(step.transactions.committed[transactional_id], step.wall_ms))
    step.when_committed(CompletionStored(transactional_id))
