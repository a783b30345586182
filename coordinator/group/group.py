"""What all kinds of groups share: the interface of a group, the row of a kind, and the step of the shard.

Classic groups and groups of the consumer protocol (KIP-848) share ids, offsets and a partition of
`__consumer_offsets`, and a group may turn from one kind into the other in place: the shard keeps groups by id, each of
the class of its kind. A kind is a package beside `coordinator/classic/`, which owns its events, records, timers and
conversions and exports one `GroupKind`; `coordinator/shard/kinds.py` is the table of these rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from moldau.coordinator.group.config import GroupConfig
from moldau.coordinator.group.image import CoordinatorImage
from moldau.coordinator.group.records import Change, RecordChange, RecordType
from moldau.coordinator.runtime.step import RestorableTimers, Step
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
        """The error of DeleteGroups; NONE where the group may be deleted."""

    def offset_deletion_error(self) -> ErrorCode:
        """The error of OffsetDelete for all offsets of the group; NONE where some may be deleted."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members use offsets of the topic, which are then neither deleted nor expired."""

    def retention_begins_ms(self, commit_ms: int) -> int | None:
        """The time (wall clock, ms) from which the retention of an offset committed at `commit_ms` counts; None: the
        group may still need the offset."""

    def tombstones(self) -> list[Change]:
        """The changes that remove the group from the log, its offsets aside."""


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
    """Those of classic groups that are complete."""
    begun: Counter[str] = field(default_factory=Counter)
    """New group epochs by the kind of the group."""


@dataclass(slots=True)
class GroupStep(Step[Change]):
    config: GroupConfig
    groups: dict[str, Group]
    timers: RestorableTimers[TimerKey]
    rebalances: Rebalances
    image: CoordinatorImage
    """The cluster's metadata at the time of the step."""

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


OnRequest: TypeAlias = Callable[[GroupStep, Group | None, AboutGroup], None]
OnEvent: TypeAlias = Callable[[GroupStep, Group], None]


@dataclass(frozen=True, slots=True)
class GroupKind:
    """One kind of group: what the shard does with its groups, requests and records.

    The decision on a request about an existing group is in `requests` of the group's kind. Where the group does not
    exist, or its kind does not know the request, it is in `first_requests` of the kind whose protocol the request
    belongs to: that kind may create the group, convert it, or refuse the request.
    """

    group: type[Group]
    requests: Mapping[type[AboutGroup], OnRequest]
    first_requests: Mapping[type[AboutGroup], OnRequest]
    records: tuple[RecordType, ...]
    replay: Callable[[Group | None, RecordChange, bool], Group | None]
    """The group after a change, from the group before it (None: it does not exist) and whether the shard is loaded. The
    result may be the same object, changed. None: the group does not exist any more, or does not exist yet.

    Raises `MalformedMessage` where the change contradicts the log before it.
    """
    timer_fired: Callable[[GroupStep, Group, TimerKey], None]
    """A timer of a group is due."""
    loaded: OnEvent
    """The whole log is replayed and committed. The group begins its timers."""
    unloaded: OnEvent
    """This broker does not lead the partition any more. The group refuses its waiting requests."""
    topics_deleted: Callable[[GroupStep, Group, frozenset[bytes]], None] = lambda step, group, topic_ids: None
    """Topics with these ids do not exist any more. Offsets are not the kind's."""
    is_ahead_of_log: bool = False
    """Whether groups of this kind change before their record is in the log. Groups of the other kinds change only by
    replay: where the log refuses the batch of a step, the step has changed nothing, timers included.
    """
    at_once: Mapping[type[AboutGroup], OnRequest] = field(default_factory=dict)
    """Requests of members that are answered without a step where nothing is to be decided. Such a function replies, and
    changes at most a deadline; or it leaves the step as it was, and the request is decided in a step.
    """
    fetch_refusal: Callable[[Group, str | None, int], ErrorCode] = lambda group, member_id, epoch: ErrorCode.NONE
    """The error of an OffsetFetch with this member id (None: none) and member epoch (-1: none)."""


GroupT = TypeVar("GroupT", bound=Group)
RequestT = TypeVar("RequestT", bound=AboutGroup)


def on_request(
    request: type[RequestT], group_class: type[GroupT], decide: Callable[[GroupStep, GroupT, RequestT], None]
) -> OnRequest:
    """Adapt a decision on a request about a group of one kind."""

    def decide_any(step: GroupStep, group: Group | None, event: AboutGroup) -> None:
        assert isinstance(event, request)
        assert isinstance(group, group_class)
        decide(step, group, event)

    return decide_any


def on_first_request(request: type[RequestT], decide: Callable[[GroupStep, Group | None, RequestT], None]) -> OnRequest:
    """Adapt a decision on a request whose group does not exist, or is of a kind that does not know the request."""

    def decide_any(step: GroupStep, group: Group | None, event: AboutGroup) -> None:
        assert isinstance(event, request)
        decide(step, group, event)

    return decide_any


def on_event(group_class: type[GroupT], decide: Callable[[GroupStep, GroupT], None]) -> OnEvent:
    """Adapt a decision on an event of an existing group."""

    def decide_any(step: GroupStep, group: Group) -> None:
        assert isinstance(group, group_class)
        decide(step, group)

    return decide_any
