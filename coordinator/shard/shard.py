"""The machine over one partition of `__consumer_offsets`: groups of all kinds by id, and their offsets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias, TypeVar

from moldau.coordinator.classic.commit import commit_offsets, commit_transactional_offsets
from moldau.coordinator.classic.group import ClassicGroup, describe, describe_absent
from moldau.coordinator.classic.join import join
from moldau.coordinator.classic.membership import heartbeat, leave, loaded, restore, timer_fired, unloaded
from moldau.coordinator.classic.sync import sync
from moldau.coordinator.group.events import (
    CommitOffsets,
    CommitTransactionalOffsets,
    DeleteGroups,
    DeleteOffsets,
    EndOffsetsTransaction,
    FetchStableOffsets,
    GroupEvent,
    GroupRequest,
    Heartbeat,
    Join,
    Leave,
    ShardRequest,
    Sync,
    TimerFired,
    TopicsDeleted,
)
from moldau.coordinator.group.group import Group, GroupConfig, GroupStep, Rebalances, TimerKey, TimerKind
from moldau.coordinator.group.records import (
    Change,
    GroupChange,
    LoadedChange,
    OffsetChange,
    OffsetsLoaded,
    TransactionEnded,
    record_of,
)
from moldau.coordinator.offsets.offset_commit import end_transaction
from moldau.coordinator.offsets.offset_delete import delete_groups, delete_offsets, expire, topics_deleted
from moldau.coordinator.offsets.offset_fetch import fetch_stable_offsets, offsets_of
from moldau.coordinator.offsets.offset_store import OffsetStore
from moldau.coordinator.runtime.machine import Loaded, Unloaded
from moldau.coordinator.runtime.shard import Shard
from moldau.coordinator.runtime.step import Timers
from moldau.protocol.messages.describe_groups import DescribedGroup
from moldau.protocol.messages.list_groups import ListedGroup
from moldau.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from moldau.protocol.record_builder import Record

RequestT = TypeVar("RequestT", bound=GroupRequest)
EventT = TypeVar("EventT", bound=GroupEvent)
GroupT = TypeVar("GroupT", bound=Group)
OnRequest: TypeAlias = Callable[[GroupStep, Group | None, GroupRequest], None]
OnEvent: TypeAlias = Callable[[GroupStep, Group, GroupEvent], None]


def on_request(
    request: type[RequestT], kind: type[GroupT], decide: Callable[[GroupStep, GroupT | None, RequestT], None]
) -> OnRequest:
    """Adapt a decision on a request, whose group may not exist."""

    def decide_any(step: GroupStep, group: Group | None, event: GroupRequest) -> None:
        assert isinstance(event, request)
        assert group is None or isinstance(group, kind)
        decide(step, group, event)

    return decide_any


def on_event(event: type[EventT], kind: type[GroupT], decide: Callable[[GroupStep, GroupT, EventT], None]) -> OnEvent:
    """Adapt a decision on an event of an existing group."""

    def decide_any(step: GroupStep, group: Group, happened: GroupEvent) -> None:
        assert isinstance(happened, event)
        assert isinstance(group, kind)
        decide(step, group, happened)

    return decide_any


REQUESTS: Final[Mapping[tuple[type[GroupRequest], type[Group]], OnRequest]] = {
    (Heartbeat, ClassicGroup): on_request(Heartbeat, ClassicGroup, heartbeat),
    (CommitOffsets, ClassicGroup): on_request(CommitOffsets, ClassicGroup, commit_offsets),
    (CommitTransactionalOffsets, ClassicGroup): on_request(
        CommitTransactionalOffsets, ClassicGroup, commit_transactional_offsets
    ),
    (Join, ClassicGroup): on_request(Join, ClassicGroup, join),
    (Sync, ClassicGroup): on_request(Sync, ClassicGroup, sync),
    (Leave, ClassicGroup): on_request(Leave, ClassicGroup, leave),
}
EVENTS: Final[Mapping[tuple[type[GroupEvent], type[Group]], OnEvent]] = {
    (TimerFired, ClassicGroup): on_event(TimerFired, ClassicGroup, timer_fired),
    (Loaded, ClassicGroup): on_event(Loaded, ClassicGroup, loaded),
    (Unloaded, ClassicGroup): on_event(Unloaded, ClassicGroup, unloaded),
}
"""The decision for each event about one group, by event and kind of group.

A new kind of group is a folder beside `classic/`, a class in it that is a `Group`, and a row here for each event. Where
the group does not exist, the request determines the kind, because each group protocol has its own requests. All
requests so far are of the classic protocol.
"""
EXPIRY_KEY: Final = TimerKey(TimerKind.EXPIRY)
EXPIRED_RECORDS_MAX: Final = 5_000
"""About how many tombstones of expired offsets one batch holds; the others follow in later batches."""


class Census(NamedTuple):
    """Counts for the metrics."""

    states: Mapping[str, int]
    """The number of groups by Kafka's name of their state."""
    members: int
    offsets: int


class GroupShard(Shard[ShardRequest, Change, GroupStep]):
    """The machine of groups: a `StateMachine[ShardRequest, LoadedChange]`."""

    def __init__(self, config: GroupConfig, committed_end_offset: int = 0) -> None:
        super().__init__(committed_end_offset)
        self.config = config
        """The settings; the shell may replace them at any time."""
        self.committed_offsets = 0
        """The number of offsets committed since this shard was loaded."""
        self._rebalances = Rebalances()
        self._groups: dict[str, Group] = {}
        self._offsets = OffsetStore()
        self._timers: Timers[TimerKey] = Timers()

    # Replaying

    def replay(self, change: LoadedChange, end_offset: int) -> None:
        """Apply a change of the log, whose batch ends at `end_offset`. Offsets change only here. For a classic group of
        a live shard the change means that its record is in the log, or that the group is deleted; its generation is
        in force already (docs/decisions/0005-groups-keep-pairs.md).
        """
        match change:
            case OffsetChange():
                self._seen(change.group_id, end_offset, is_created=change.value is not None)
                self._offsets.append(change, end_offset)
                if self.is_loaded:
                    self.committed_offsets += change.value is not None
                else:
                    self.commit()
            case OffsetsLoaded():
                for group_id in change.offsets:
                    self._seen(group_id, end_offset, is_created=True)
                self._offsets.append(change, end_offset)
                self.commit()
            case TransactionEnded():
                self._offsets.append(change, end_offset)
                if not self.is_loaded:
                    self.commit()
            case GroupChange(group_id, None):
                self._forget(group_id)
            case GroupChange(group_id, value) if value is not None:
                if not self.is_loaded:
                    self._groups[group_id] = restore(group_id, value)
                self._seen(group_id, end_offset, is_created=False)

    def _seen(self, group_id: str, end_offset: int, *, is_created: bool) -> None:
        """Update the state of the group after the replay of a record about it.

        `is_created`: the record is an offset, which creates a group even without members.
        """
        group = self._groups.get(group_id)
        if group is None:
            if not is_created:
                return
            group = self._groups[group_id] = ClassicGroup(group_id, None)
        if group.visible_from is None:
            group.visible_from = end_offset

    def _forget(self, group_id: str) -> None:
        group = self._groups.pop(group_id, None)
        if group is not None:
            assert group.is_empty or not self.is_loaded, "only empty groups are deleted"
            for member_id in group.session_ids:
                self._timers.cancel(TimerKey(TimerKind.SESSION, group_id, member_id))

    def commit(self) -> None:
        self._offsets.commit(self.committed_end_offset)

    # Deciding

    @property
    def commit_timeout_ms(self) -> int:
        return self.config.offsets_commit_timeout_ms

    def begin(self, now_ms: int, wall_ms: int) -> GroupStep:
        return GroupStep(now_ms, wall_ms, self.config, self._groups, self._timers, self._rebalances)

    def record_of(self, change: Change, wall_ms: int) -> Record:
        return record_of(change, wall_ms)

    def decide(self, step: GroupStep, request: ShardRequest) -> None:
        match request:
            case Heartbeat() | CommitOffsets() | CommitTransactionalOffsets() | Join() | Sync() | Leave():
                group = self._groups.get(request.request.group_id)
                kind = ClassicGroup if group is None else type(group)
                REQUESTS[type(request), kind](step, group, request)
            case EndOffsetsTransaction():
                end_transaction(step, request)
            case FetchStableOffsets():
                fetch_stable_offsets(step, self._offsets, request)
            case DeleteOffsets():
                delete_offsets(step, self._offsets, request)
            case DeleteGroups():
                delete_groups(step, self._offsets, request)
            case TopicsDeleted():
                topics_deleted(step, self._offsets, request)

    def loaded(self, step: GroupStep) -> None:
        self._timers.schedule(EXPIRY_KEY, step.now_ms + self.config.offsets_retention_check_interval_ms)
        for group in self._groups.values():
            EVENTS[Loaded, type(group)](step, group, Loaded())

    def unloaded(self, step: GroupStep) -> None:
        groups = list(self._groups.values())
        self._groups.clear()
        for group in groups:
            EVENTS[Unloaded, type(group)](step, group, Unloaded())

    def next_timer_ms(self) -> int | None:
        return self._timers.next_deadline_ms()

    def fire_timer(self, step: GroupStep) -> None:
        key = self._timers.pop_due(step.now_ms)
        if key is None:
            return
        if key.kind is TimerKind.EXPIRY:
            is_done = expire(step, self._offsets, EXPIRED_RECORDS_MAX)
            interval_ms = self.config.offsets_retention_check_interval_ms if is_done else 0
            self._timers.schedule(EXPIRY_KEY, step.now_ms + interval_ms)
            return
        group = self._groups.get(key.group_id)
        if group is not None:
            EVENTS[TimerFired, type(group)](step, group, TimerFired(key))

    # Reading

    @property
    def completed_rebalances(self) -> int:
        """The number of rebalances completed since this shard was loaded."""
        return self._rebalances.completed

    def census(self) -> Census:
        states = Counter(group.state_name for group in self._groups.values())
        return Census(states, sum(group.members_count for group in self._groups.values()), self._offsets.count)

    def offsets(self, request: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
        """The committed offsets of a group, without those of open transactions. The request names topics by name."""
        return offsets_of(self._offsets.committed(request.group_id), request)

    def describe(self, group_id: str, version: int) -> DescribedGroup:
        """Describe a classic group for DescribeGroups; a group of any other kind is described as absent."""
        group = self._groups.get(group_id)
        if isinstance(group, ClassicGroup) and self._is_visible(group):
            return describe(group)
        return describe_absent(group_id, version)

    def list_groups(self, states: list[str], types: list[str]) -> Iterator[ListedGroup | None]:
        """The groups with the given states and types; an empty list does not filter. There may be many: None stands for
        a group that is left out, and groups may change while the caller pauses.
        """
        wanted_states, wanted_types = {state.lower() for state in states}, {name.lower() for name in types}
        for group in [*self._groups.values()]:
            is_listed = (
                self._is_visible(group)
                and (not wanted_states or group.state_name.lower() in wanted_states)
                and (not wanted_types or group.group_type.value in wanted_types)
            )
            yield list_entry(group) if is_listed else None

    def _is_visible(self, group: Group) -> bool:
        return group.visible_from is not None and group.visible_from <= self.committed_end_offset


def list_entry(group: Group) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state_name,
        group_type=group.group_type.value,
    )
