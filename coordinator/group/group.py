"""The interfaces that the group shard uses for groups of every kind: of a group, of a kind of groups, and the step.

Groups of all kinds share group ids, offsets and the partitions of `__consumer_offsets`, and a group may turn from one
kind into another in place. So the shard keeps groups by id, and each group is an object of its kind's class. A kind is
a package beside `coordinator/classic/`, which owns its events, records, timers and conversions and has one `GroupKind`;
`coordinator/shard/kinds.py` lists them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, NamedTuple, Protocol, TypeVar

from moldau.coordinator.group.config import GroupConfig
from moldau.coordinator.group.history import (
    CAUSE_OF_REFUSAL,
    DETAIL_SIZE_MAX,
    NO_CLIENT,
    REBALANCE_BEGAN,
    Cause,
    GroupEvent,
    GroupHistory,
    NamedClient,
)
from moldau.coordinator.group.image import CoordinatorImage
from moldau.coordinator.group.records import Change, RecordChange, RecordType
from moldau.coordinator.runtime.step import APPENDED, RestorableTimers, Step
from moldau.protocol.errors import ErrorCode


class Group(Protocol):
    visible_from: int | None
    """The end offset of the first record about the group; None before that record is appended.

    Readers see the group once that record is committed.
    """

    @property
    def group_id(self) -> str: ...

    @property
    def type_name(self) -> str:
        """Kafka's name of the kind, for ListGroups."""

    @property
    def state_name(self) -> str:
        """Kafka's name of the state, for ListGroups and the metrics."""

    @property
    def protocol_type(self) -> str | None: ...

    @property
    def members_count(self) -> int: ...

    @property
    def timers(self) -> Collection[TimerKey]:
        """The keys of all timers that the group may have. They are cancelled when the group is removed."""

    @property
    def is_simple(self) -> bool:
        """Whether the group has only offsets, which consumers without membership committed. A group of any kind may
        replace it.
        """

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members. A group without members is removed when its last offset expires."""

    def deletion_error(self) -> ErrorCode:
        """The error of DeleteGroups for this group; NONE if the group may be deleted."""

    def offset_deletion_error(self) -> ErrorCode:
        """The error of OffsetDelete for the whole group; NONE if offsets of topics without subscribers may be
        deleted."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member is subscribed to the topic. The group's offsets of such a topic are neither deleted nor
        expired."""

    def retention_begins_ms(self, commit_ms: int) -> int | None:
        """The time (wall clock, ms) from which the retention of an offset committed at `commit_ms` counts; None if the
        group may still need the offset."""

    def tombstones(self) -> list[Change]:
        """The tombstones of all records of the group, except those of its offsets."""


class TimerKind(Enum):
    """The base class of enumerations of timers. Each kind of group has an enumeration of its own."""

    __hash__ = object.__hash__  # The hash of Enum is a Python function, and each heartbeat moves a timer.


class TimerKey(NamedTuple):
    """The identity of a timer: its kind, and the group and the member that it is about, if any."""

    kind: TimerKind
    group_id: str = ""
    member_id: str = ""


@dataclass(slots=True)
class RebalanceCounts:
    """Counts of rebalances for the metrics. They are kept from step to step."""

    completed: int = 0
    """The number of completed rebalances of classic groups."""
    begun: Counter[str] = field(default_factory=Counter)
    """The number of new group epochs by the kind of the group."""


class HistoryWhenCommitted(NamedTuple):
    """Adds the events of a step to the histories of their groups when the log has accepted the records of the step."""

    events: list[tuple[str, GroupEvent]]
    """The events with the ids of their groups, in order. The step may add more until its records are appended."""

    def on_committed(self, step: GroupStep) -> None:
        step.history.add(self.events)

    def on_failed(self, step: GroupStep, error: ErrorCode) -> None:
        if error in APPENDED:
            self.on_committed(step)


_new_tuple = tuple.__new__  # This is what the constructor of a named tuple calls, at half the cost.


@dataclass(slots=True)
class GroupStep(Step[Change]):
    config: GroupConfig
    groups: dict[str, Group]
    timers: RestorableTimers[TimerKey]
    rebalances: RebalanceCounts
    image: CoordinatorImage
    """The cluster's metadata at the time of the step."""
    history: GroupHistory
    events: list[tuple[str, GroupEvent]] | None = field(default=None, kw_only=True)
    """The events that this step has reported, with the ids of their groups; None if it has reported none."""

    def add_to_history(
        self, group_id: str, cause: Cause, about: NamedClient = NO_CLIENT, *, number: int = 0, detail: str = ""
    ) -> GroupEvent:
        """Report an event: it is added to the history of a group when the records of this step are committed. Returns
        the event."""
        if len(detail) > DETAIL_SIZE_MAX:
            detail = detail[:DETAIL_SIZE_MAX]
        now_ms = self.wall_ms
        values = (cause, about.member_id, about.client_id, about.client_host, number, detail, now_ms, now_ms, 1)
        event = _new_tuple(GroupEvent, values)
        events = self.events
        if events is None:
            events = self.events = []
            self.outcomes.append(HistoryWhenCommitted(events))
        events.append((group_id, event))
        return event

    def add_rebalance_to_history(self, group_id: str, cause: GroupEvent, number: int) -> None:
        """Report that a rebalance begins because of the event `cause`, which this step has reported. `number` is the
        generation that ends, or the epoch that begins."""
        kind, member_id, client_id, client_host, _, _, now_ms, _, _ = cause
        detail = kind._value_  # `value` is a function.
        values = (REBALANCE_BEGAN, member_id, client_id, client_host, number, detail, now_ms, now_ms, 1)
        assert self.events is not None, "the cause of a rebalance is reported first"
        self.events.append((group_id, _new_tuple(GroupEvent, values)))

    def add_refusal_to_history(self, group_id: str, about: NamedClient, error: ErrorCode) -> None:
        """Report a refusal to the history of its group, if `CAUSE_OF_REFUSAL` has its error. A group that does not
        exist gets no history, because otherwise group names that clients invent could displace the events of other
        groups."""
        cause = CAUSE_OF_REFUSAL.get(error)
        if cause is not None and group_id in self.groups:
            self.add_to_history(group_id, cause, about, detail=error.name)

    def note(self, group: Group, text: str) -> None:
        """Add a note about a group for the operator's log.

        The caller quotes names and reasons, which are text from clients.
        """
        self.notes.append(f"group {group.group_id!r}: {text}")

    def schedule(self, kind: TimerKind, group: Group, delay_ms: int, member_id: str = "") -> None:
        self.timers.schedule(TimerKey(kind, group.group_id, member_id), self.now_ms + delay_ms)

    def cancel(self, kind: TimerKind, group: Group, member_id: str = "") -> None:
        self.timers.cancel(TimerKey(kind, group.group_id, member_id))


class SettledHeartbeat(NamedTuple):
    """A heartbeat that only prolongs the session of its member, with all values on which this decision was based. As
    long as they are unchanged, the same heartbeat gets the same response and only moves the session timer
    (`GroupShard.prolong_session`).
    """

    group: Group
    member: object
    """The member at the time of the decision. The heartbeat is not settled any more if the group has another object for
    the member."""
    epoch: int
    """The epoch of the member and its group, or the generation."""
    instance_id: str | None
    timer: TimerKey
    timeout_ms: int
    """The length (ms) of the member's session."""
    config: GroupConfig
    image: CoordinatorImage
    response: object
    wait_max_ms: int = 0
    """How long (ms) the response may wait for a change of the group (`AnswerHeartbeats`); 0 if it must not wait."""


class RequestOfGroup(Protocol):
    """A request or a report about one group, which may not exist. The kind of the group decides on it."""

    @property
    def group_id(self) -> str: ...


GroupT = TypeVar("GroupT", bound=Group)
RequestT = TypeVar("RequestT", bound=RequestOfGroup)


class GroupKind(ABC, Generic[GroupT, RequestT]):
    """One kind of group: what the shard does with the groups, requests and records of this kind.

    `decide` decides on a request about an existing group of the kind. If the group does not exist, or its `decide` does
    not handle the request, `decide_first` of another kind decides: the kind to whose protocol the request belongs. It
    may create the group, convert it, or refuse the request.
    """

    group_class: type[Group]
    first_requests: tuple[type[RequestOfGroup], ...]
    """The types of the requests that `decide_first` of this kind decides on."""
    records: tuple[RecordType, ...]
    requests_at_once: tuple[type[RequestOfGroup], ...] = ()
    """The types of requests that `decide_at_once` may reply to."""
    session_timer: TimerKind
    """The timer that removes a member which sends no requests. It restarts with each request of the member."""
    is_ahead_of_log = False
    """Whether groups of this kind change before their record is in the log. Groups of the other kinds change only by
    replay: if the log refuses the batch of a step, they have not changed, and their timers are restored."""

    @abstractmethod
    def decide(self, step: GroupStep, group: GroupT, event: RequestOfGroup) -> bool:
        """Decide on a request about a group of this kind. Returns False if the kind does not handle this type of
        request."""

    @abstractmethod
    def decide_first(self, step: GroupStep, group: Group | None, event: RequestT) -> None:
        """Decide on a request of this kind's protocol if the group does not exist (None), or if the group's own kind
        does not handle the request."""

    def decide_at_once(self, step: GroupStep, group: Group | None, event: RequestT) -> None:
        """Reply to a request of this kind's protocol if it changes nothing but a deadline. Otherwise do nothing: a
        separate step decides on the request.
        """
        return

    def settled_heartbeat(self, step: GroupStep, group: GroupT, event: RequestOfGroup) -> SettledHeartbeat | None:
        """The heartbeat `event` as a `SettledHeartbeat`, if it only prolongs the session of its member; None for all
        other requests."""
        return None

    def is_settled(self, group: GroupT, heartbeat: SettledHeartbeat) -> bool:
        """Whether a repetition of a settled heartbeat still only prolongs the session. The caller has checked that the
        settings and the image are unchanged, and that replies to requests that write nothing may be sent now.
        """
        return False

    @abstractmethod
    def replay(self, group: GroupT | None, change: RecordChange, is_loaded: bool) -> GroupT | None:
        """Return the group after a record is applied. `group` is the group before it, None if there was none. The
        result may be the same object, changed. It is None if the group does not exist after the record.

        Raises `MalformedMessage` if the change contradicts the log before it.
        """

    @abstractmethod
    def on_timer(self, step: GroupStep, group: GroupT, key: TimerKey) -> None:
        """Handle a timer of a group that is due."""

    @abstractmethod
    def session_timeouts_ms(
        self, config: GroupConfig, image: CoordinatorImage, group: GroupT
    ) -> Iterator[tuple[str, int]]:
        """Yield the id of each member of a group, and the length of its session (ms)."""

    @abstractmethod
    def on_loaded(self, step: GroupStep, group: GroupT) -> None:
        """Start the timers of a group when the whole log is replayed and committed."""

    def on_unloaded(self, step: GroupStep, group: GroupT) -> None:
        """Refuse the waiting requests of a group, because this broker no longer leads the partition. The shard itself
        refuses the requests that wait for a commit.
        """
        return

    def on_topics_deleted(self, step: GroupStep, group: GroupT, topic_ids: frozenset[bytes]) -> None:
        """React to the deletion of the topics with these ids. The shard itself deletes the offsets of the topics."""
        return

    def fetch_refusal(self, group: GroupT, member_id: str | None, epoch: int) -> ErrorCode:
        """The error of an OffsetFetch for the group; NONE if the fetch is accepted. `member_id` is None and `epoch` is
        -1 if the request has none."""
        return ErrorCode.NONE
