"""One step of the transaction machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from moldau.coordinator.runtime.effects import Waiter
from moldau.coordinator.runtime.outcomes import ReplyWhenCommitted
from moldau.coordinator.runtime.step import Step
from moldau.coordinator.runtime.timers import Timers
from moldau.coordinator.runtime.write_errors import write_error
from moldau.coordinator.transaction.config import TransactionConfig
from moldau.coordinator.transaction.events import ProducerIdAnswer
from moldau.coordinator.transaction.records import TransactionChange
from moldau.coordinator.transaction.transaction import Transaction
from moldau.coordinator.transaction.transactions import Transactions
from moldau.protocol.errors import ErrorCode


class TransactionTimer(Enum):
    ABORTS = auto()
    """The next search for transactions that have timed out."""
    EXPIRY = auto()
    """The next search for transactional ids that have expired."""
    COMPLETION = auto()
    """The next attempt to store that all markers of a transaction are written."""


class TransactionTimerKey(NamedTuple):
    kind: TransactionTimer
    transactional_id: str = ""


@dataclass(slots=True)
class TransactionStep(Step[TransactionChange]):
    config: TransactionConfig
    transactions: Transactions
    timers: Timers[TransactionTimerKey]
    coordinator_epoch: int
    """The leader epoch of the partition of `__transaction_state`."""
    next_producer_id: Callable[[], int | None]
    """A producer id that no producer has had; None while the broker waits for a block of them."""

    def store(self, transactional_id: str, transaction: Transaction) -> None:
        """Write the next state of a transactional id."""
        self.write(TransactionChange(transactional_id, transaction))

    def answer_when_committed(self, waiter: Waiter, answer: ProducerIdAnswer) -> None:
        """Respond with a producer id and epoch once the record is committed, or with the error where the log refused
        it.
        """
        self.when_committed(ReplyWhenCommitted(waiter, answer, producer_refused_by_the_log))

    def note(self, transactional_id: str, text: str) -> None:
        """Add a note about a transactional id for the operator's log."""
        self.notes.append(f"transactional id {transactional_id!r}: {text}")


def producer_refused_by_the_log(error: ErrorCode) -> ProducerIdAnswer:
    return ProducerIdAnswer(write_error(error))
