"""The last events of each group, with their causes. The number of events is bounded for the whole node.

    a step ──tell──▶ its records are committed ──▶ GroupHistory ──▶ `moldau group explain`, the console

The coordinator reports an event at the time of the decision, because a record in the log says what changed but not why.
Events are not in the log, so a new coordinator begins without any. If an event equals the last one of its group, only
the count of that one increases; so a client that is refused again and again does not displace other events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final, Protocol

from moldau.protocol.errors import ErrorCode
from moldau.protocol.late_tuple import NamedTuple

GROUP_EVENTS_MAX: Final = 128
"""The largest number of events that are kept for one group."""
GROUP_EVENTS_MIN: Final = 4
"""The number of events that each group may keep even if there are many groups. A group keeps fewer only if the events
of all groups exceed the limit of the node."""
NODE_EVENTS_MAX: Final = 53_248
"""The largest number of events of all groups together: at most 20 MB, if each event has texts of its own
(`bench.history`)."""
DETAIL_SIZE_MAX: Final = 255
"""The length (characters) to which a text from a client is cut."""


class Cause(Enum):
    """The kind of an event. The value is its name in answers to users; `TEXTS` has its sentence."""

    __hash__ = object.__hash__

    JOINED = "joined"
    JOINED_AGAIN = "joined-again"
    RETURNED = "returned"
    LEFT = "left"
    LEFT_FOR_A_WHILE = "left-for-a-while"
    SESSION_EXPIRED = "session-expired"
    JOIN_TIMED_OUT = "join-timed-out"
    SYNC_TIMED_OUT = "sync-timed-out"
    REVOKE_TIMED_OUT = "revoke-timed-out"
    FENCED = "fenced"
    REFUSED = "refused"
    SUBSCRIPTION_CHANGED = "subscription-changed"
    TOPICS_CHANGED = "topics-changed"
    EXPRESSION_CHANGED = "expression-changed"
    TOO_MANY_MEMBERS = "too-many-members"
    NOT_STORED = "not-stored"
    BECAME_CONSUMER = "became-consumer"
    BECAME_CLASSIC = "became-classic"
    REBALANCE_BEGAN = "rebalance-began"
    REBALANCE_ENDED = "rebalance-ended"
    COMMIT_REFUSED = "commit-refused"
    COMMIT_WENT_BACK = "commit-went-back"
    RECORDS_LOST = "records-lost"
    OFFSETS_EXPIRED = "offsets-expired"
    OFFSETS_DELETED = "offsets-deleted"
    OFFSETS_SET = "offsets-set"
    OFFSETS_SET_AHEAD = "offsets-set-ahead"
    TOPIC_DELETED = "topic-deleted"
    DELETED = "deleted"


REBALANCE_BEGAN: Final = Cause.REBALANCE_BEGAN


class NamedClient(Protocol):
    """The fields by which an event names a member or a client."""

    @property
    def member_id(self) -> str: ...

    @property
    def client_id(self) -> str: ...

    @property
    def client_host(self) -> str: ...


class Client(NamedTuple):
    """A client that is not a member of the group."""

    member_id: str = ""
    client_id: str = ""
    client_host: str = ""


NO_CLIENT: Final = Client()


class GroupEvent(NamedTuple):
    """One event of a group. Times are those of the wall clock (ms)."""

    cause: Cause
    member_id: str = ""
    client_id: str = ""
    client_host: str = ""
    number: int = 0
    """A number whose meaning depends on the cause (`TEXTS`): a time (ms), a generation or an epoch, a number of members
    or of offsets."""
    detail: str = ""
    """A text whose meaning depends on the cause (`TEXTS`). It is quoted in `text` if it comes from a client."""
    first_ms: int = 0
    last_ms: int = 0
    times: int = 1
    """The number of times that the event happened from `first_ms` to `last_ms`, without another event between."""

    @property
    def text(self) -> str:
        """The sentence that describes the event, without its time."""
        because = f" ({self.detail!r})" if self.detail else ""
        return TEXTS[self.cause].format(member=self.member_id, number=self.number, detail=self.detail, because=because)


TEXTS: Final = {
    Cause.JOINED: "member {member!r} joins{because}",
    Cause.JOINED_AGAIN: "member {member!r} joins again{because}",
    Cause.RETURNED: "static member {detail!r} restarted as {member!r}",
    Cause.LEFT: "member {member!r} left{because}",
    Cause.LEFT_FOR_A_WHILE: "static member {detail!r} left, and its place is kept",
    Cause.SESSION_EXPIRED: "member {member!r} was not heard of for its session of {number} ms",
    Cause.JOIN_TIMED_OUT: "member {member!r} did not join again within {number} ms",
    Cause.SYNC_TIMED_OUT: "member {member!r} joined and did not ask for its assignment within {number} ms",
    Cause.REVOKE_TIMED_OUT: "member {member!r} did not give up its partitions within {number} ms",
    Cause.FENCED: "member {member!r} is fenced: {detail}",
    Cause.REFUSED: "client {member!r} may not join: {detail}",
    Cause.SUBSCRIPTION_CHANGED: "member {member!r} changed its subscription",
    Cause.TOPICS_CHANGED: "topics that the group reads were created, deleted or got partitions",
    Cause.EXPRESSION_CHANGED: "an expression of its members matches other topics",
    Cause.TOO_MANY_MEMBERS: "{number} members are more than are allowed",
    Cause.NOT_STORED: "the assignment was not stored: {detail}",
    Cause.BECAME_CONSUMER: "it becomes a consumer group",
    Cause.BECAME_CLASSIC: "it becomes a classic group",
    Cause.REBALANCE_BEGAN: "a rebalance begins: {detail} (generation or epoch {number})",
    Cause.REBALANCE_ENDED: "generation {number} begins with {detail} members",
    Cause.COMMIT_REFUSED: "a commit of member {member!r} is refused: {detail}",
    Cause.COMMIT_WENT_BACK: "the offset of {detail} went back by {number}",
    Cause.RECORDS_LOST: "{number} records of {detail} were gone before a commit went past them",
    Cause.OFFSETS_EXPIRED: "{number} offsets expired",
    Cause.OFFSETS_DELETED: "{number} offsets were deleted by a request",
    Cause.OFFSETS_SET: "the start offsets of {number} share partitions were set by a request",
    Cause.OFFSETS_SET_AHEAD: "a commit without a member set the offset of {detail} ahead by {number}",
    Cause.TOPIC_DELETED: "{number} offsets were deleted with the topic {detail}",
    Cause.DELETED: "the group was deleted by a request",
}


CAUSE_OF_REFUSAL: Final = {
    ErrorCode.FENCED_MEMBER_EPOCH: Cause.FENCED,
    ErrorCode.FENCED_INSTANCE_ID: Cause.FENCED,
    ErrorCode.UNKNOWN_MEMBER_ID: Cause.FENCED,
    ErrorCode.UNRELEASED_INSTANCE_ID: Cause.REFUSED,
    ErrorCode.GROUP_MAX_SIZE_REACHED: Cause.REFUSED,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: Cause.REFUSED,
    ErrorCode.INVALID_SESSION_TIMEOUT: Cause.REFUSED,
    ErrorCode.GROUP_ID_NOT_FOUND: Cause.REFUSED,
    ErrorCode.INVALID_REGULAR_EXPRESSION: Cause.REFUSED,
    ErrorCode.UNSUPPORTED_ASSIGNOR: Cause.REFUSED,
}
"""The cause to report for the error of a refused heartbeat or join. Refusals with any other error come from a bug of
the client, and are not reported."""


def unknown_log_start(topic: str, partition: int) -> int:
    """The default for `GroupHistory.log_start_of`: -1, because the log start offset is not known."""
    return -1


class GroupHistory:
    """The last events of all groups of a node."""

    def __init__(
        self,
        since_ms: int = 0,
        events_max: int = NODE_EVENTS_MAX,
        log_start_of: Callable[[str, int], int] = unknown_log_start,
    ) -> None:
        """`log_start_of` returns the log start offset of a partition, by topic and partition index; -1 if it is not
        known."""
        self.since_ms = since_ms
        """The wall-clock time (ms) from which on this history has events."""
        self.log_start_of = log_start_of
        self.events_max = events_max
        self._rings: dict[str, list[GroupEvent]] = {}
        """The events of each group by group id. The group whose last event is the oldest comes first."""
        self._count = 0
        self._room = 0
        """The number of events that each group may keep, as long as the number of groups is `_groups_count`."""
        self._groups_count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, events: Iterable[tuple[str, GroupEvent]]) -> None:
        """Add events, each with the id of its group. An event that equals the group's last one only raises its count.
        To make room, the oldest events of the same group are removed, then those of the groups whose last event is the
        oldest."""
        rings, ring, last_id = self._rings, None, None
        for group_id, event in events:
            if ring is None or group_id != last_id:
                ring = rings.pop(group_id, None)
                if ring is None:
                    ring = []
                rings[group_id] = ring
                last_id = group_id
            if ring:
                last = ring[-1]
                if last.cause is event.cause and last[:6] == event[:6]:
                    ring[-1] = last._replace(last_ms=event.last_ms, times=last.times + 1)
                    continue
                if len(ring) >= GROUP_EVENTS_MIN:
                    groups_count = len(rings)
                    if groups_count != self._groups_count:
                        self._groups_count = groups_count
                        self._room = min(max(self.events_max // groups_count, GROUP_EVENTS_MIN), GROUP_EVENTS_MAX)
                    while len(ring) >= self._room:
                        del ring[0]
                        self._count -= 1
            ring.append(event)
            self._count += 1
        while self._count > self.events_max:
            silent_id = next(iter(rings))
            silent = rings[silent_id]
            del silent[0]
            self._count -= 1
            if not silent:
                del rings[silent_id]

    def events_of(self, group_id: str) -> tuple[GroupEvent, ...]:
        """The events of a group, the oldest first."""
        return tuple(self._rings.get(group_id, ()))
