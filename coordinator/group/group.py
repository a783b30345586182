"""What all kinds of groups share: the interface of a group, that of a kind, and the step of the shard.

Classic groups and groups of the consumer protocol (KIP-848) share ids, offsets and a partition of
`__consumer_offsets`, and a group may turn from one kind into the other in place: the shard keeps groups by id, each of
the class of its kind. A kind is a package beside `coordinator/classic/`, which owns its events, records, timers and
conversions and has one `GroupKind`; `coordinator/shard/kinds.py` lists them.
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
    Cause,
    GroupEvent,
    GroupHistory,
    Named,
)
from moldau.coordinator.group.image import CoordinatorImage
from moldau.coordinator.group.records import Change, RecordChange, RecordType
from moldau.coordinator.runtime.step import APPENDED, RestorableTimers, Step
from moldau.protocol.errors import ErrorCode


class Group(Protocol):
    visible_from: int | None
    """End offset of the first record about the group; None before it is appended.

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
        """Whether the group only keeps offsets of consumers without membership, so that any kind of group may take its
        place.
        """

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members. A group without members expires with its last offset."""

    def deletion_error(self) -> ErrorCode:
        """The error of DeleteGroups; NONE if the group may be deleted."""

    def offset_deletion_error(self) -> ErrorCode:
        """The error of OffsetDelete for all offsets of the group; NONE if some may be deleted."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members use offsets of the topic, which are then neither deleted nor expired."""

    def retention_begins_ms(self, commit_ms: int) -> int | None:
        """The time (wall clock, ms) from which the retention of an offset committed at `commit_ms` counts; None if the
        group may still need the offset."""

    def tombstones(self) -> list[Change]:
        """The tombstones of all records of the group, except those of its offsets."""


class TimerKind(Enum):
    """The base of the kinds of timers: each kind of group has its own."""

    __hash__ = object.__hash__  # The hash of Enum is a Python function, and each heartbeat moves a timer.


class TimerKey(NamedTuple):
    """The name of a timer."""

    kind: TimerKind
    group_id: str = ""
    member_id: str = ""


@dataclass(slots=True)
class Rebalances:
    """Counts of rebalances for the metrics, which outlive the steps."""

    completed: int = 0
    """The number of rebalances of classic groups that are complete."""
    begun: Counter[str] = field(default_factory=Counter)
    """New group epochs by the kind of the group."""


class EventCommitted(NamedTuple):
    """The outcome of a step that reported an event. The event becomes part of the history, unless the log refuses the
    records of the step."""

    group_id: str
    event: GroupEvent

    def committed(self, step: GroupStep) -> None:
        step.history.add(self.group_id, self.event, step.wall_ms)

    def failed(self, step: GroupStep, error: ErrorCode) -> None:
        if error in APPENDED:
            self.committed(step)


@dataclass(slots=True)
class GroupStep(Step[Change]):
    config: GroupConfig
    groups: dict[str, Group]
    timers: RestorableTimers[TimerKey]
    rebalances: Rebalances
    image: CoordinatorImage
    """The cluster's metadata at the time of the step."""
    history: GroupHistory

    def tell(
        self, group_id: str, cause: Cause, about: Named = NO_CLIENT, *, number: int = 0, detail: str = ""
    ) -> GroupEvent:
        """Add an event to the history of a group, once the records of this step are committed."""
        detail = detail[:DETAIL_SIZE_MAX]
        event = GroupEvent(cause, about.member_id, about.client_id, about.client_host, number, detail)
        self.when_committed(EventCommitted(group_id, event))
        return event

    def tell_rebalance(self, group_id: str, cause: GroupEvent, number: int) -> None:
        """Add the begin of a rebalance, after the event that caused it. `number`: the generation that ends, or the
        epoch that begins.
        """
        self.tell(group_id, Cause.REBALANCE_BEGAN, cause, number=number, detail=cause.cause.value)

    def tell_refusal(self, group_id: str, about: Named, error: ErrorCode) -> None:
        """Add a refusal to the history of its group, if it is one that a user should know of. A group that does not
        exist has no history: otherwise the names that clients invent could displace the events of other groups.
        """
        cause = CAUSE_OF_REFUSAL.get(error)
        if cause is not None and group_id in self.groups:
            self.tell(group_id, cause, about, detail=error.name)

    def note(self, group: Group, text: str) -> None:
        """Add a note about a group for the operator's log.

        The caller quotes names and reasons, which are text from clients.
        """
        self.notes.append(f"group {group.group_id!r}: {text}")

    def schedule(self, kind: TimerKind, group: Group, delay_ms: int, member_id: str = "") -> None:
        self.timers.schedule(TimerKey(kind, group.group_id, member_id), self.now_ms + delay_ms)

    def cancel(self, kind: TimerKind, group: Group, member_id: str = "") -> None:
        self.timers.cancel(TimerKey(kind, group.group_id, member_id))


class AboutGroup(Protocol):
    """A request or a report about one group, which may not exist. The decision depends on the kind of the group."""

    @property
    def group_id(self) -> str: ...


GroupT = TypeVar("GroupT", bound=Group)
RequestT = TypeVar("RequestT", bound=AboutGroup)


class GroupKind(ABC, Generic[GroupT, RequestT]):
    """One kind of group: what the shard does with its groups, requests and records.

    `decide` decides on a request about an existing group of the kind. If the group does not exist, or its kind does not
    know the request, the kind whose protocol the request belongs to decides by `decide_first`: it may create the group,
    convert it, or refuse the request.
    """

    group_class: type[Group]
    first_requests: tuple[type[AboutGroup], ...]
    """The requests of the kind's protocol."""
    records: tuple[RecordType, ...]
    requests_at_once: tuple[type[AboutGroup], ...] = ()
    """The types of requests that `decide_at_once` may reply to."""
    session_timer: TimerKind
    """The timer that removes a member that sends no requests. It begins anew with each request of the member."""
    is_ahead_of_log = False
    """Whether groups of this kind change before their record is in the log. Groups of the other kinds change only by
    replay: if the log refuses the batch of a step, the step has changed nothing, timers included.
    """

    @abstractmethod
    def decide(self, step: GroupStep, group: GroupT, event: AboutGroup) -> bool:
        """Decide on a request about a group of this kind. Returns False if the kind does not know the request."""

    @abstractmethod
    def decide_first(self, step: GroupStep, group: Group | None, event: RequestT) -> None:
        """Decide on a request of this protocol whose group does not exist (None), or whose kind does not know it."""

    def decide_at_once(self, step: GroupStep, group: Group | None, event: RequestT) -> None:
        """Reply to a request of this protocol that changes at most a deadline. Any other request leaves the step
        unchanged, and is decided on in a step of its own.
        """
        return

    @abstractmethod
    def replay(self, group: GroupT | None, change: RecordChange, is_loaded: bool) -> GroupT | None:
        """The group after a change. `group` is the group before it, None if there was none. The result may be the same
        object, changed; it is None if the group does not exist any more, or does not exist yet.

        Raises `MalformedMessage` if the change contradicts the log before it.
        """

    @abstractmethod
    def timer_fired(self, step: GroupStep, group: GroupT, key: TimerKey) -> None:
        """Handle a timer of a group that is due."""

    @abstractmethod
    def session_timeouts_ms(
        self, config: GroupConfig, image: CoordinatorImage, group: GroupT
    ) -> Iterator[tuple[str, int]]:
        """Yield the id of each member of a group, and the length of its session (ms)."""

    @abstractmethod
    def loaded(self, step: GroupStep, group: GroupT) -> None:
        """Begin the timers of a group: the whole log is replayed and committed."""

    def unloaded(self, step: GroupStep, group: GroupT) -> None:
        """Refuse the waiting requests of a group, because this broker no longer leads the partition. The shard itself
        refuses the requests that wait for a commit.
        """
        return

    def topics_deleted(self, step: GroupStep, group: GroupT, topic_ids: frozenset[bytes]) -> None:
        """React to the deletion of the topics with these ids. The shard itself deletes their offsets."""
        return

    def fetch_refusal(self, group: GroupT, member_id: str | None, epoch: int) -> ErrorCode:
        """The error of an OffsetFetch. `member_id` is None and `epoch` is -1 if the request has none."""
        return ErrorCode.NONE
