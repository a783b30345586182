"""The contract between a coordinator's machine and the shell: the code of the broker that runs the machine.

    event ──▶ step ──▶ records (one atomic batch) ──appended──▶ replay ──committed──▶ replies that waited for it
                 └───▶ replies that need no record

The shell owns the log of one partition. It loads a new machine by replaying the log, then reports `Loaded`, and from
then on passes one event after another to the machine. It appends the records of a step and reports the result of the
append before any other event. If the broker no longer leads the partition, its machine is dropped; the next leader's
machine loads from the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias, TypeVar

from moldau.protocol.errors import ErrorCode
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.record_builder import Record


class Waiter(NamedTuple):
    """A client that waits for a response: a token by which the broker finds the client, and the version of the
    request."""

    token: object
    version: int


class MachineReply(NamedTuple):
    """A response, and the token of the client to which the broker sends it."""

    token: object
    response: object


class TransactionEnd(NamedTuple):
    """The content of a transaction marker. `coordinator_epoch` is the epoch of the transaction coordinator that sent
    the marker."""

    is_commit: bool
    coordinator_epoch: int
    transaction_version: int = 0
    """The transaction.version of the producer. From 2 on the marker has a higher producer epoch than the records
    (KIP-1228)."""


class TransactionWrite(NamedTuple):
    """Makes the batch of a step part of a producer's transaction.

    With `end` the batch is the marker that ends the transaction, and the step has no records.
    """

    producer_id: int
    producer_epoch: int
    end: TransactionEnd | None = None
    guard: object = None
    """The log's verification guard for the first records of the transaction in this log. The machine got the guard with
    the request.

    None if the transaction is open in the log already.
    """


class Effects(NamedTuple):
    """The effects of a step, which the broker carries out. It appends the records as one atomic batch, sends the
    replies, performs the commands, and then reports the append to the machine (`Appended` or `AppendRefused`) before
    any other event.

    A reply that must wait until the records are committed is not in this list. The step that handles the commit returns
    it.
    """

    records: list[Record]
    replies: list[MachineReply]
    notes: list[str]
    """Messages for the operator's log."""
    commands: Sequence[object] = ()
    """Actions outside of the log, which `CoordinatorDefinition.perform` carries out."""
    transaction: TransactionWrite | None = None

    @property
    def has_batch(self) -> bool:
        """Whether the step has records or a transaction marker to append."""
        return bool(self.records) or (self.transaction is not None and self.transaction.end is not None)


class Loaded(NamedTuple):
    """The event that the whole log is replayed and committed. Requests follow after this event."""


class Unloaded(NamedTuple):
    """The event that this broker no longer leads the partition.

    The machine tells waiting clients to look up the new coordinator. No event follows.
    """


class Tick(NamedTuple):
    """The event that a deadline may have passed. One tick handles one deadline, so the caller asks `next_deadline_ms`
    again after it."""


class Appended(NamedTuple):
    """The event that the records of the preceding step are in the log, which now ends at this offset."""

    end_offset: int
    committed_end_offset: int = 0
    """The high watermark after the append. If no other replica is in sync, the records are committed already."""


class AppendRefused(NamedTuple):
    """The event that the log refused the records of the preceding step: none of them was appended."""

    error: ErrorCode


class Committed(NamedTuple):
    """The event that the high watermark moved: every record below this offset is committed."""

    end_offset: int


RuntimeEvent: TypeAlias = Loaded | Unloaded | Tick | Appended | AppendRefused | Committed


RequestT_contra = TypeVar("RequestT_contra", contravariant=True)
LoadedT_contra = TypeVar("LoadedT_contra", contravariant=True)


class StateMachine(Protocol[RequestT_contra, LoadedT_contra]):
    """A deterministic coordinator of one partition: it reads no clock and does no I/O.

    `RequestT_contra` stands for the events that the machine itself defines, `LoadedT_contra` for the changes that its
    record reader produces.
    """

    def replay(self, change: LoadedT_contra, end_offset: int) -> None:
        """Apply a change of the log; its batch ends at `end_offset`."""

    def step(self, event: RequestT_contra | RuntimeEvent, now_ms: int, wall_ms: int) -> Effects:
        """Decide about an event, and return the effects. `now_ms` is the time on the monotonic clock; deadlines are
        times on this clock. `wall_ms` is the time on the wall clock; it becomes the timestamp of the records."""

    def reply_at_once(self, event: RequestT_contra | RuntimeEvent, now_ms: int, wall_ms: int) -> MachineReply | None:
        """Return the reply to a request that changes nothing but a deadline; None if the event needs a step."""

    def next_deadline_ms(self) -> int | None:
        """The time (ms, monotonic clock) at which the next `Tick` is due; None if no deadline is set."""
