"""What one step of a machine asks the shell to do."""

from __future__ import annotations

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


class Effects(NamedTuple):
    """The shell acts in this order: it appends the records as one atomic batch, sends the replies, and then reports the
    append to the machine (`Appended` or `AppendRefused`) before any other event.

    A reply that needs the records to be committed is not among these replies: the step of the commit returns it.
    """

    records: list[Record]
    replies: list[MachineReply]
    notes: list[str]
    """Sentences for the operator's log."""
