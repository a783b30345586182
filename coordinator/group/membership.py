"""Functions for consumer, share and Streams groups: member epochs, refusals, the validation of heartbeats, and
responses. `target.py` has those for target assignments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from moldau.coordinator.group.group import GroupStep
from moldau.coordinator.group.history import Cause, Client, NamedClient
from moldau.coordinator.runtime.machine import Waiter
from moldau.coordinator.runtime.step import ReplyWhenCommitted, write_error
from moldau.protocol.errors import ErrorCode

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")

FIRST_EPOCH: Final = 1
"""The group epoch and the assignment epoch of a group before its first record."""
NO_ASSIGNMENT_EPOCH: Final = -1
"""The assignment epoch of a group after the tombstone of its target, which precedes the removal of the group."""
JOIN_EPOCH: Final = 0
"""The member epoch in the heartbeat of a member that joins."""
LEAVE_EPOCH: Final = -1
"""The member epoch in the heartbeat of a member that leaves."""
LEAVE_STATIC_EPOCH: Final = -2
"""The member epoch of a static member that leaves temporarily. Its partitions stay reserved for the next member with
its instance id."""
WAITING_HEARTBEATS_PER_S: Final = 200
NO_TIMEOUT_MS: Final = -1
"""The rebalance timeout in a heartbeat that does not state it."""
BLANKS: Final = "".join(map(chr, range(0x21)))
"""The characters that `String.trim` of Java removes."""


class Refusal(NamedTuple):
    """The error code and message of a request that is refused and changes nothing."""

    error: ErrorCode
    message: str | None = None


class HeartbeatRule(NamedTuple, Generic[RequestT]):
    """A rule that makes a heartbeat invalid for any group. `is_broken_by` returns whether a request breaks the rule."""

    is_broken_by: Callable[[RequestT], bool]
    message: str | None
    """Apache Kafka's message, in which `{0.member_epoch}` stands for that field of the request; None if the error has
    no message."""


def is_blank(text: str | None) -> bool:
    return text is not None and not text.strip(BLANKS)


def first_broken_rule(rows: Sequence[HeartbeatRule[RequestT]], request: RequestT) -> Refusal | None:
    """The refusal by the first rule that the request breaks, in Apache Kafka's order; None if the request is valid."""
    for is_broken_by, message in rows:
        if is_broken_by(request):
            return Refusal(ErrorCode.INVALID_REQUEST, message and message.format(request))
    return None


def group_not_found(group_id: str) -> Refusal:
    return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")


def wrong_group_kind(group_id: str, kind: str) -> Refusal:
    return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a {kind} group.")


def unknown_member(group_id: str, member_id: str) -> Refusal:
    return Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}.")


def fenced_by_epoch(kind: str, received: int, known: int, previous: str = "") -> Refusal:
    comparison = "greater" if received > known else "smaller"
    return Refusal(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The {kind} group member has a {comparison} member epoch ({received}) than the one known by the group "
        f"coordinator ({known}){previous}. The member must abandon all its partitions and rejoin.",
    )


def group_full_refusal(kind: str, members_max: int) -> Refusal:
    message = f"The {kind} group has reached its maximum capacity of {members_max} members."
    return Refusal(ErrorCode.GROUP_MAX_SIZE_REACHED, message)


class HeartbeatRequest(Protocol):
    """The fields that the heartbeats of all kinds of groups have."""

    @property
    def group_id(self) -> str: ...

    @property
    def member_id(self) -> str: ...


class HeartbeatEvent(Protocol):
    """A heartbeat request with the client that sent it."""

    @property
    def waiter(self) -> Waiter: ...

    @property
    def request(self) -> HeartbeatRequest: ...

    @property
    def client_id(self) -> str: ...

    @property
    def client_host(self) -> str: ...


def answer_heartbeat(
    step: GroupStep, event: HeartbeatEvent, decided: ResponseT | Refusal, refused: Callable[[Refusal], ResponseT]
) -> None:
    """Send the response to a heartbeat once everything that it reports is committed. If `decided` is a refusal, the
    response that `refused` makes of it is sent at once."""
    if isinstance(decided, Refusal):
        client = Client(event.request.member_id, event.client_id, event.client_host)
        step.add_refusal_to_history(event.request.group_id, client, decided.error)
        step.reply(event.waiter, refused(decided))
    else:
        answer_when_committed(step, event.waiter, decided, refused)


def heartbeat_interval_of(step: GroupStep, members_count: int, interval_ms: int, *, is_waiting: bool) -> int:
    """The interval (ms) that the response to a heartbeat asks for: `interval_ms`, or a shorter one while the member
    waits for a target or for partitions. All waiting members of a group together send at most
    `WAITING_HEARTBEATS_PER_S`.

    DIVERGES: Apache Kafka always asks for the interval of the group's settings. Such a member then stands idle for up
    to five seconds after its partitions have become free.
    """
    if not is_waiting:
        return interval_ms
    spread_ms = members_count * 1_000 // WAITING_HEARTBEATS_PER_S
    return min(interval_ms, max(step.config.waiting_heartbeat_interval_ms, spread_ms))


class GroupOfMembers(Protocol):
    @property
    def group_id(self) -> str: ...

    @property
    def type_name(self) -> str: ...

    @property
    def members(self) -> Mapping[str, object]: ...


def note_rebalance_begun(
    step: GroupStep, group: GroupOfMembers, epoch: int, member: NamedClient, *, is_subscription_changed: bool
) -> None:
    """Count and report a rebalance. The heartbeat of `member` begins it, because it raises the group epoch to
    `epoch`."""
    step.rebalances.begun[group.type_name] += 1
    if member.member_id not in group.members:
        cause = step.add_to_history(group.group_id, Cause.JOINED, member)
    elif is_subscription_changed:
        cause = step.add_to_history(group.group_id, Cause.SUBSCRIPTION_CHANGED, member)
    else:
        cause = step.add_to_history(group.group_id, Cause.TOPICS_CHANGED)
    step.add_rebalance_to_history(group.group_id, cause, epoch)


def answer_when_committed(
    step: GroupStep, waiter: Waiter, response: object, refused: Callable[[Refusal], object] = lambda refusal: refusal
) -> None:
    """Send a response once everything that it reports is committed. If the log refuses the records, send the response
    that `refused` makes of the error."""
    step.when_committed(ReplyWhenCommitted(waiter, response, lambda error: refused(Refusal(write_error(error)))))
