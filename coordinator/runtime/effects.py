"""What one step of a machine asks the shell to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from protocol.record_builder import Record


class Waiter(NamedTuple):
    """The client's side of a request: the shell's token for the reply, and the version of the request."""

    token: object
    version: int


class MachineReply(NamedTuple):
    """A response, which the shell sends to the client behind the token."""

    token: object
    response: object


class TransactionEnd(NamedTuple):
    """What a marker says. `coordinator_epoch` is that of the transaction coordinator which sent it."""

    is_commit: bool
    coordinator_epoch: int
    transaction_version: int = 0
    """The protocol of the transaction's producer: under 2 a marker has a higher epoch than the records (KIP-1228)."""


class TransactionWrite(NamedTuple):
    """The batch of a step is part of a producer's transaction, or ends it: with `end` it is that marker, and the step
    has no records."""

    producer_id: int
    producer_epoch: int
    end: TransactionEnd | None = None
    guard: object = None
    """The log's, for the first records of the transaction in it: the shell gave it to the machine with the request.
    None: the transaction is open in the log already."""


class Effects(NamedTuple):
    """The shell acts in this order: it appends the records as one atomic batch, sends the replies, performs the
    commands, and then reports the append to the machine (`Appended` or `AppendRefused`) before any other event.

    A reply that needs the records to be committed is not among these replies: the step of the commit returns it.
    """

    records: list[Record]
    replies: list[MachineReply]
    notes: list[str]
    """Sentences for the operator's log."""
    commands: Sequence[object] = ()
    """What the machine wants done outside of its log, in the terms of its row (`CoordinatorRow.perform`)."""
    transaction: TransactionWrite | None = None

    @property
    def has_batch(self) -> bool:
        """Whether there is something to append."""
        return bool(self.records) or (self.transaction is not None and self.transaction.end is not None)
