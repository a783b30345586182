"""The contract between a machine and the shell that runs it.

    event ──▶ step ──▶ records (one atomic batch) ──appended──▶ replay ──committed──▶ replies that waited for it
                 └───▶ replies that need no record

The shell owns the log of one partition. It loads a new machine by replaying the log, then reports `Loaded`, and from
then on steps one event after another. It appends the records of a step and reports the result of the append before any
other event. A machine that loses its partition is dropped; the next leader's machine loads from the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias, TypeVar

from moldau.protocol.errors import ErrorCode
from moldau.protocol.late_tuple import NamedTuple
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
    """The verification guard of the log, for the first records of the transaction in it. The shell passes the guard to
    the machine with the request.

    None if the transaction is open in the log already.
    """


class Effects(NamedTuple):
    """What the shell has to do after a step. It appends the records as one atomic batch, sends the replies, performs
    the commands, and then reports the append to the machine (`Appended` or `AppendRefused`) before any other event.

    A reply that must wait until the records are committed is not in this list. The step that handles the commit returns
    it.
    """

    records: list[Record]
    replies: list[MachineReply]
    notes: list[str]
    """Messages for the operator's log."""
    commands: Sequence[object] = ()
    """Actions outside of the log, which `CoordinatorRow.perform` carries out."""
    transaction: TransactionWrite | None = None

    @property
    def has_batch(self) -> bool:
        """Whether the step has a batch to append."""
        return bool(self.records) or (self.transaction is not None and self.transaction.end is not None)


class Loaded(NamedTuple):
    """The whole log is replayed and committed. Requests follow after this event."""


class Unloaded(NamedTuple):
    """This broker no longer leads the partition.

    The machine tells waiting clients to look up the new coordinator. No event follows.
    """


class Tick(NamedTuple):
    """A deadline may have passed. One tick handles one deadline: ask `next_deadline_ms` again after it."""


class Appended(NamedTuple):
    """The records of the preceding step are in the log, which now ends at this offset."""

    end_offset: int
    committed_end_offset: int = 0
    """The high watermark after the append. Without other replicas in sync the records are committed already."""


class AppendRefused(NamedTuple):
    """The log refused the records of the preceding step: none of them was appended."""

    error: ErrorCode


class Committed(NamedTuple):
    """The high watermark moved: every record below this offset is committed."""

    end_offset: int


RuntimeEvent: TypeAlias = Loaded | Unloaded | Tick | Appended | AppendRefused | Committed


RequestT_contra = TypeVar("RequestT_contra", contravariant=True)
LoadedT_contra = TypeVar("LoadedT_contra", contravariant=True)


class StateMachine(Protocol[RequestT_contra, LoadedT_contra]):
    """A deterministic coordinator of one partition: it reads no clock and does no I/O.

    `RequestT_contra`: the events that the machine itself defines. `LoadedT_contra`: the changes that its record reader
    produces.
    """

    def replay(self, change: LoadedT_contra, end_offset: int) -> None:
        """Apply a change of the log; its batch ends at `end_offset`."""

    def step(self, event: RequestT_contra | RuntimeEvent, now_ms: int, wall_ms: int) -> Effects:
        """Decide about an event. `now_ms` is the monotonic clock of deadlines, `wall_ms` the wall clock of records."""

    def reply_at_once(self, event: RequestT_contra | RuntimeEvent, now_ms: int, wall_ms: int) -> MachineReply | None:
        """Reply to a request that changes nothing but a deadline; None if the event needs a step."""

    def next_deadline_ms(self) -> int | None:
        """The time of the next `Tick`, on the clock of deadlines (ms); None if no deadline is set."""
