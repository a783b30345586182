"""The parts that all machines are built from: the step with its outcomes, timers by key, and the queue of uncommitted
changes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, Final, Generic, NamedTuple, Protocol, Self, TypeVar

from moldau.coordinator.runtime.machine import MachineReply, TransactionWrite, Waiter
from moldau.protocol.errors import ErrorCode

ChangeT = TypeVar("ChangeT")
KeyT = TypeVar("KeyT", bound=Hashable)
StepT_contra = TypeVar("StepT_contra", contravariant=True)


class Outcome(Protocol[StepT_contra]):
    """The continuation after the write of a step. Either `on_committed` or `on_failed` is called, exactly once."""

    def on_committed(self, step: StepT_contra) -> None: ...

    def on_failed(self, step: StepT_contra, error: ErrorCode) -> None:
        """Handle a failed write; `error` is the log's error. After REQUEST_TIMED_OUT the records may still be
        committed."""


@dataclass(slots=True)
class Step(Generic[ChangeT]):
    """The base class of a step: one event of a machine with its time and its effects. The subclass of a machine adds
    the state that its decisions read."""

    now_ms: int
    """The time (ms) of the step on the monotonic clock. Deadlines are times on this clock."""
    wall_ms: int
    """The time (ms) of the step on the wall clock. It becomes the timestamp of the records."""
    changes: list[ChangeT] = field(default_factory=list, kw_only=True)
    outcomes: list[Outcome[Self]] = field(default_factory=list, kw_only=True)
    replies: list[MachineReply] = field(default_factory=list, kw_only=True)
    notes: list[str] = field(default_factory=list, kw_only=True)
    commands: list[object] = field(default_factory=list, kw_only=True)
    transaction: TransactionWrite | None = field(default=None, kw_only=True)
    """The transaction to which the changes belong; None if they are outside of any transaction. A change that
    represents a transaction marker has no record."""

    def reply(self, waiter: Waiter, response: object) -> None:
        self.replies.append(MachineReply(waiter.token, response))

    def write(self, *changes: ChangeT) -> None:
        """Add changes to the batch of this step. All changes of a step are one batch: all of them are stored or
        none."""
        self.changes.extend(changes)

    def command(self, command: object) -> None:
        """Ask the broker for an action outside of the log. The broker performs it after it has sent the replies of this
        step."""
        self.commands.append(command)

    def when_committed(self, outcome: Outcome[Self]) -> None:
        """Call the outcome when all writes up to the end of this step are committed."""
        self.outcomes.append(outcome)


class ReplyWhenCommitted(NamedTuple):
    """The outcome of a request whose response waits until its records are committed."""

    waiter: Waiter
    response: object
    refused: Callable[[ErrorCode], object]
    """The function that makes the response if the log refuses the records, from the log's error."""

    def on_committed(self, step: Step[Any]) -> None:
        step.reply(self.waiter, self.response)

    def on_failed(self, step: Step[Any], error: ErrorCode) -> None:
        step.reply(self.waiter, self.refused(error))


APPENDED: Final = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_COORDINATOR)
"""The errors of writes that are in the log although they failed: they were not committed in time, or not while this
broker led the partition."""
WRITE_ERRORS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""The error in the response to the client, by the error of the log."""


def write_error(error: ErrorCode) -> ErrorCode:
    """The error in the response to the client after a failed write. An error that `WRITE_ERRORS` does not have is
    returned unchanged."""
    return WRITE_ERRORS.get(error, error)


SETTLED_AT_ONCE: Final = 8
"""The most entries of the heap that one call corrects. In a group of 10,000 members all entries may be out of date, and
correcting them at once would hold the event loop for 8 ms."""


class Timers(Generic[KeyT]):
    """Deadlines by key, in a heap. Moving a deadline to a later time only writes to a dictionary; the entry in the heap
    is corrected when the earlier time is reached. Equal deadlines fire in the order in which they were put into the
    heap.
    """

    __slots__ = ("_deadlines", "_heap", "_order", "_queued")

    def __init__(self) -> None:
        self._deadlines: dict[KeyT, int] = {}
        self._queued: dict[KeyT, int] = {}
        """The earliest time (ms) for which the heap has an entry of the key."""
        self._heap: list[tuple[int, int, KeyT]] = []
        self._order = 0

    def schedule(self, key: KeyT, deadline_ms: int) -> None:
        """Set the deadline of a key, in place of its earlier deadline."""
        self._deadlines[key] = deadline_ms
        queued = self._queued.get(key)
        if queued is None or deadline_ms < queued:
            self._push(key, deadline_ms)

    def postpone(self, key: KeyT, deadline_ms: int) -> bool:
        """Move the deadline of a key to a later time. Returns False, and changes nothing, if the key has no deadline or
        a later one. A caller that waits until `next_deadline_ms` may continue to wait for that time."""
        former_ms = self._deadlines.get(key)
        if former_ms is None or former_ms > deadline_ms:
            return False
        self._deadlines[key] = deadline_ms
        return True

    def deadline_ms(self, key: KeyT) -> int | None:
        """The deadline of a key; None if it has none."""
        return self._deadlines.get(key)

    def cancel(self, key: KeyT) -> None:
        self._deadlines.pop(key, None)

    def has(self, key: KeyT) -> bool:
        """Whether a deadline of the key is set."""
        return key in self._deadlines

    def next_deadline_ms(self) -> int | None:
        """The time (ms) at which the caller has to look for a due deadline (`pop_due`); None if no deadline is set. The
        time may be earlier than the next deadline: if a deadline is moved or cancelled, its former time is dropped only
        when it is reached."""
        self._settle()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> KeyT | None:
        """Remove and return the key with the earliest deadline; None if no due deadline is found. One call looks at a
        limited number of entries. So after None the caller calls again as long as `next_deadline_ms` is due."""
        if not self._settle():
            return None
        queued, _, key = self._heap[0]
        if queued > now_ms:
            return None
        heappop(self._heap)
        del self._deadlines[key]
        self._queued.pop(key, None)
        return key

    def _settle(self) -> bool:
        """Correct the head of the heap for deadlines that were cancelled or moved: at most `SETTLED_AT_ONCE` entries.
        Returns whether the head is a deadline."""
        heap = self._heap
        for _ in range(SETTLED_AT_ONCE):
            if not heap:
                return False
            queued, _, key = heap[0]
            deadline = self._deadlines.get(key)
            if deadline == queued:
                return True
            heappop(heap)
            if self._queued.get(key) == queued:
                del self._queued[key]
                if deadline is not None:
                    self._push(key, deadline)
        return bool(heap) and self._deadlines.get(heap[0][2]) == heap[0][0]

    def _push(self, key: KeyT, deadline_ms: int) -> None:
        self._order += 1
        self._queued[key] = deadline_ms
        heappush(self._heap, (deadline_ms, self._order, key))


class RestorableTimers(Timers[KeyT]):
    """Timers whose changes in a step can be undone, because a step has no effect if the log refuses its batch."""

    __slots__ = ("changed",)

    def __init__(self) -> None:
        super().__init__()
        self.changed: dict[KeyT, int | None] = {}
        """The former deadline of each key that was set, moved, cancelled or due since `begin_step`; None if the key had
        none.
        """

    def begin_step(self) -> None:
        """Begin a step: forget which deadlines were changed before."""
        self.changed = {}

    def schedule(self, key: KeyT, deadline_ms: int) -> None:
        self.changed.setdefault(key, self._deadlines.get(key))
        super().schedule(key, deadline_ms)

    def cancel(self, key: KeyT) -> None:
        self.changed.setdefault(key, self._deadlines.get(key))
        super().cancel(key)

    def pop_due(self, now_ms: int) -> KeyT | None:
        key = super().pop_due(now_ms)
        if key is not None:
            self.changed.setdefault(key, now_ms)
        return key

    def restore(self, former: Mapping[KeyT, int | None], earliest_ms: int) -> None:
        """Set the former deadlines again, but none of them before `earliest_ms`."""
        for key, deadline_ms in former.items():
            if deadline_ms is None:
                self.cancel(key)
            else:
                self.schedule(key, max(deadline_ms, earliest_ms))


class UncommittedChanges(Generic[ChangeT]):
    """Changes that are appended and not committed, in the order of the log, each with the end offset of its batch."""

    def __init__(self) -> None:
        self._changes: deque[tuple[int, ChangeT]] = deque()

    def __len__(self) -> int:
        return len(self._changes)

    def __iter__(self) -> Iterator[ChangeT]:
        return (change for _, change in self._changes)

    def add(self, change: ChangeT, end_offset: int) -> None:
        """Add an appended change; its batch ends at `end_offset`."""
        self._changes.append((end_offset, change))

    def pop_committed(self, committed_end_offset: int) -> Iterator[ChangeT]:
        """Remove and return the changes whose batches end at or before this offset, in the order of the log."""
        changes = self._changes
        while changes and changes[0][0] <= committed_end_offset:
            yield changes.popleft()[1]
