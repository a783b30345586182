"""The effects of one step of a machine, which the shell carries out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from moldau.protocol.record_builder import Record


class Waiter(NamedTuple):
    """A client that waits for a response: the shell's token, and the version of the request."""

    token: object
    version: int


class MachineReply(NamedTuple):
    """A response for the client behind the token; the shell sends it."""

    token: object
    response: object


class TransactionEnd(NamedTuple):
    """The content of a marker. `coordinator_epoch` is that of the transaction coordinator that sent the marker."""

    is_commit: bool
    coordinator_epoch: int
    transaction_version: int = 0
    """The transaction.version of the producer. From 2 on the marker has a higher epoch than the records (KIP-1228)."""


class TransactionWrite(NamedTuple):
    """Makes the batch of a step part of a producer's transaction.

    With `end` the batch is the marker that ends the transaction, and the step has no records.
    """

    producer_id: int
    producer_epoch: int
    end: TransactionEnd | None = None
    guard: object = None
    """The verification guard of the log, for the first records of the transaction in it; the shell passes it to the
    machine with the request.

    None: the transaction is open in the log already.
    """


class Effects(NamedTuple):
    """The shell acts in this order: it appends the records as one atomic batch, sends the replies, performs the
    commands, and then reports the append to the machine (`Appended` or `AppendRefused`) before any other event.

    A reply that needs the records to be committed is not among these replies: the step of the commit returns it.
    """

    records: list[Record]
    replies: list[MachineReply]
    notes: list[str]
    """Messages for the operator's log."""
    commands: Sequence[object] = ()
    """Actions outside of the log, as the machine's row defines them (`CoordinatorRow.perform`)."""
    transaction: TransactionWrite | None = None

    @property
    def has_batch(self) -> bool:
        """Whether the step has a batch to append."""
        return bool(self.records) or (self.transaction is not None and self.transaction.end is not None)
