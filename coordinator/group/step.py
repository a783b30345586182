"""One step under way: what it may see and change, and the effects it has gathered so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from coordinator.classic.group import Group
from coordinator.classic.group_state import GroupState
from coordinator.group.config import GroupConfig
from coordinator.group.records import Change
from coordinator.offsets.offset_store import OffsetStore
from coordinator.runtime.effects import Reply, Response, Waiter
from coordinator.runtime.timers import TimerKey, TimerKind, Timers
from protocol.errors import ErrorCode


class Outcome(Protocol):
    """What follows when the records of a step are committed, or will not be."""

    def committed(self, turn: Turn) -> None: ...

    def failed(self, turn: Turn, error: ErrorCode) -> None:
        """The error is the log's, or REQUEST_TIMED_OUT: the records may yet be committed."""


class ReplyWhenCommitted(NamedTuple):
    """Owe a reply until the records are committed."""

    waiter: Waiter
    response: Response
    refusal: Callable[[ErrorCode], Response]
    """The answer for what the log says instead."""

    def committed(self, turn: Turn) -> None:
        turn.reply(self.waiter, self.response)

    def failed(self, turn: Turn, error: ErrorCode) -> None:
        turn.reply(self.waiter, self.refusal(error))


@dataclass(slots=True)
class Turn:
    config: GroupConfig
    groups: dict[str, Group]
    offsets: OffsetStore
    timers: Timers
    now_ms: int
    """The clock of the timers: it never jumps."""
    wall_ms: int
    """The clock of the records."""
    changes: list[Change] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    completed_rebalances: int = 0

    def reply(self, waiter: Waiter, response: Response) -> None:
        self.replies.append(Reply(waiter.token, response))

    def note(self, group: Group, text: str) -> None:
        """Tell the operator. Names and reasons are clients' text: they are quoted by whoever puts them in."""
        self.notes.append(f"group {group.group_id!r}: {text}")

    def write(self, *changes: Change) -> None:
        """All records of a step are one batch."""
        self.changes.extend(changes)

    def when_committed(self, outcome: Outcome) -> None:
        """Follow up when all that was written up to the end of this step is committed."""
        self.outcomes.append(outcome)

    def schedule(self, kind: TimerKind, group: Group, delay_ms: int, member_id: str = "") -> None:
        self.timers.schedule(TimerKey(kind, group.group_id, member_id), self.now_ms + delay_ms)

    def cancel(self, kind: TimerKind, group: Group, member_id: str = "") -> None:
        self.timers.cancel(TimerKey(kind, group.group_id, member_id))

    def move(self, group: Group, state: GroupState) -> None:
        group.move_to(state, self.wall_ms)


WRITE_REFUSALS = {
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
"""What clients of a group are told where the log refuses."""


def write_refusal(error: ErrorCode) -> ErrorCode:
    return WRITE_REFUSALS.get(error, error)
