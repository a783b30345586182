"""The machine over one partition of `__consumer_offsets`: groups of all kinds by id, and their offsets."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from enum import auto
from itertools import islice
from typing import Final, NamedTuple, cast

from moldau.coordinator.group.config import GroupConfig
from moldau.coordinator.group.events import (
    CommitOffsets,
    DeleteGroups,
    DeleteOffsets,
    EndOffsetsTransaction,
    FetchStableOffsets,
    ShardRequest,
    TopicsDeleted,
)
from moldau.coordinator.group.group import (
    Group,
    GroupKind,
    GroupStep,
    RebalanceCounts,
    RequestOfGroup,
    SettledHeartbeat,
    TimerKey,
    TimerKind,
)
from moldau.coordinator.group.history import Cause, GroupEvent, GroupHistory
from moldau.coordinator.group.image import NO_METADATA, CoordinatorImage
from moldau.coordinator.group.records import (
    Change,
    LoadedChange,
    OffsetChange,
    OffsetsLoaded,
    RecordChange,
    TopicPartition,
    TransactionEnded,
)
from moldau.coordinator.group.target import TargetComputed
from moldau.coordinator.offsets.offset_commit import write_transaction_marker
from moldau.coordinator.offsets.offset_delete import continue_expiry, delete_groups, delete_offsets, on_topics_deleted
from moldau.coordinator.offsets.offset_fetch import AllOffsets, fetch_stable_offsets, offsets_of
from moldau.coordinator.offsets.offset_store import GroupOffsets, OffsetStore, OffsetWentBack
from moldau.coordinator.runtime.machine import MachineReply, RuntimeEvent
from moldau.coordinator.runtime.shard import Shard
from moldau.coordinator.runtime.step import APPENDED, RestorableTimers
from moldau.coordinator.shard.kinds import (
    KIND_AT_ONCE,
    KIND_OF_GROUP,
    KIND_OF_KEY,
    decide,
    fetch_refusal,
    new_group_of_offsets,
    record_of,
)
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.list_groups import ListedGroup
from moldau.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from moldau.protocol.record_builder import Record


class ShardTimer(TimerKind):
    EXPIRY = auto()
    """The timer of the next search for expired offsets."""
    EXPIRY_CONTINUED = auto()
    """The timer of the next step of a search that has not ended."""


EXPIRY_KEY: Final = TimerKey(ShardTimer.EXPIRY)
EXPIRY_CONTINUED_KEY: Final = TimerKey(ShardTimer.EXPIRY_CONTINUED)
REPEATED_AFTER_MS: Final = 500
"""The delay (ms) after which a timer fires again if the log refused the records that it wrote, as in Apache Kafka."""


class ExpiryContinued(NamedTuple):
    """The outcome of a step of the expiry that has not examined all groups: the expiry continues when the tombstones of
    the step are committed. If they are not, it ends, and the next one begins after the usual interval."""

    groups_left: deque[str]

    def on_committed(self, step: GroupStep) -> None:
        # A millisecond later, so that other requests are handled before.
        step.timers.schedule(EXPIRY_CONTINUED_KEY, step.now_ms + 1)

    def on_failed(self, step: GroupStep, error: ErrorCode) -> None:
        self.groups_left.clear()


class TimersRestored(NamedTuple):
    """The outcome of a step with a batch. If the log refuses the batch, the timers are restored to their state before
    the step, and a timer that fired in the step fires again."""

    former: Mapping[TimerKey, int | None]
    """The former deadline (ms) of each timer that the step changed; None if it had none."""

    def on_committed(self, step: GroupStep) -> None:
        pass

    def on_failed(self, step: GroupStep, error: ErrorCode) -> None:
        if error not in APPENDED:
            step.timers.restore(self.former, step.now_ms + REPEATED_AFTER_MS)


class GroupCounts(NamedTuple):
    """The numbers of groups, members and offsets, for the metrics."""

    states: Mapping[tuple[str, str], int]
    """The number of groups by Kafka's names of the group's kind and state."""
    members: int
    offsets: int


class GroupShard(Shard[ShardRequest, Change, GroupStep]):
    """The machine of groups: a `StateMachine[ShardRequest, LoadedChange]`."""

    def __init__(
        self,
        config: GroupConfig,
        committed_end_offset: int = 0,
        current_image: Callable[[], CoordinatorImage] = lambda: NO_METADATA,
        history: GroupHistory | None = None,
    ) -> None:
        """`current_image` returns the cluster's metadata at the time of each step. `history` is the event history of
        the node; if it is None, the shard makes one of its own."""
        super().__init__(committed_end_offset)
        self.config = config
        """The settings of groups. The broker may replace them at any time."""
        self.committed_offsets = 0
        """The number of offsets committed since this shard was loaded."""
        self.history = GroupHistory() if history is None else history
        self._current_image = current_image
        self._rebalances = RebalanceCounts()
        self._groups: dict[str, Group] = {}
        self._offsets = OffsetStore(self.history.log_start_of)
        self._timers: RestorableTimers[TimerKey] = RestorableTimers()
        self._expiring: deque[str] = deque()
        """The ids of the groups that the expiry has yet to examine; empty if none is in progress."""

    # Replaying

    def replay(self, change: LoadedChange, end_offset: int) -> None:
        """Apply a change of the log, whose batch ends at `end_offset`. Offsets and groups change only here, with one
        exception: classic groups of a loaded shard change before their record is written
        (docs/decisions/0005-groups-keep-pairs.md)."""
        match change:
            case OffsetChange():
                if change.value is not None or change.group_id in self._groups:
                    self._seen(change.group_id, end_offset)
                self._offsets.append(change, end_offset)
                if self.is_loaded:
                    self.committed_offsets += change.value is not None
                else:
                    self.commit()
            case OffsetsLoaded():
                for group_id in change.offsets:
                    self._seen(group_id, end_offset)
                self._offsets.append(change, end_offset)
                self.commit()
            case TransactionEnded():
                self._offsets.append(change, end_offset)
                if not self.is_loaded:
                    self.commit()
            case RecordChange():
                self._replay_record(change, end_offset)

    def _replay_record(self, change: RecordChange, end_offset: int) -> None:
        """Apply a record of one kind of group. A group that only has offsets is replaced by a group of the record's
        kind; while the shard loads, so is any group of another kind.

        DIVERGES: Apache Kafka 4.3.1 cannot load a log in which a record of a consumer group follows a classic group
        that has members (KAFKA-21117). That is what a coordinator reads while the log cleaner is at work: a segment
        before it was cleaned, and a later one without the tombstone of the classic group, because the group has become
        a classic one again.
        """
        kind = KIND_OF_KEY[type(change.key)]
        former = self._groups.get(change.group_id)
        own = former if isinstance(former, kind.group_class) else None
        group = kind.replay(own, change, self.is_loaded)
        if group is None:
            if own is not None:
                self._forget(own)
            return
        assert own is not None or former is None or former.is_simple or not self.is_loaded, "tombstones come first"
        self._groups[change.group_id] = group
        if group.visible_from is None:
            group.visible_from = end_offset if own is not None or former is None else former.visible_from

    def _seen(self, group_id: str, end_offset: int) -> None:
        """Note that an offset of the group was replayed: create the group if it does not exist, and set its
        `visible_from`."""
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = new_group_of_offsets(group_id)
        if group.visible_from is None:
            group.visible_from = end_offset

    def _forget(self, group: Group) -> None:
        del self._groups[group.group_id]
        for key in group.timers:
            self._timers.cancel(key)

    def commit(self) -> None:
        """Make offsets visible to readers. In a loaded shard, an offset that is lower than the former one or skips
        deleted records is reported in the history of its group.
        """
        for told in self._offsets.commit(self.committed_end_offset):
            if self.is_loaded:
                cause = Cause.COMMIT_WENT_BACK if isinstance(told, OffsetWentBack) else Cause.RECORDS_LOST
                at_ms = told.commit_ms
                event = GroupEvent(
                    cause, number=told.by, detail=f"{told.topic}-{told.partition}", first_ms=at_ms, last_ms=at_ms
                )
                self.history.add([(told.group_id, event)])

    # Deciding

    @property
    def commit_timeout_ms(self) -> int:
        return self.config.offsets_commit_timeout_ms

    def begin(self, now_ms: int, wall_ms: int) -> GroupStep:
        self._timers.begin_step()
        return GroupStep(
            now_ms,
            wall_ms,
            self.config,
            self._groups,
            self._timers,
            self._rebalances,
            self._current_image(),
            self.history,
        )

    def record_of(self, change: Change, wall_ms: int) -> Record:
        return record_of(change, wall_ms)

    def decide(self, step: GroupStep, request: ShardRequest) -> None:
        match request:
            case EndOffsetsTransaction():
                write_transaction_marker(step, request)
            case FetchStableOffsets(waiter, asked) if error := fetch_refusal(self._groups.get(asked.group_id), asked):
                step.reply(waiter, OffsetFetchResponseGroup(group_id=asked.group_id, error_code=error))
            case FetchStableOffsets():
                fetch_stable_offsets(step, self._offsets, request)
            case DeleteOffsets():
                delete_offsets(step, self._offsets, request)
            case DeleteGroups():
                delete_groups(step, self._offsets, request)
            case TopicsDeleted():
                on_topics_deleted(step, self._offsets, request)
                for each in self._groups.values():
                    KIND_OF_GROUP[type(each)].on_topics_deleted(step, each, request.topic_ids)
            case TargetComputed():
                self._take_target(step, request)
            case _:
                group = self._groups.get(request.group_id)
                kind = decide(step, group, request)
                if type(request) is CommitOffsets and not request.request.member_id and group is not None:
                    self._tell_set_ahead(step, group)
                self._restore_timers_if_refused(step, kind)

    def _tell_set_ahead(self, step: GroupStep, group: Group) -> None:
        """Report the offsets that a commit without a member sets ahead, if the group has had members: its own members
        commit as such. They are compared with the offsets that readers see, without a copy of those that are appended
        and not committed. A commit that goes back is reported when it takes effect (`commit`).
        """
        if group.is_simple or not step.changes:
            return
        visible = self._offsets.committed_offsets(group.group_id).offsets
        for change in step.changes:
            if isinstance(change, OffsetChange) and change.value is not None:
                former = visible.get((change.topic, change.partition))
                if former is not None and change.value.offset > former.offset:
                    step.add_to_history(
                        group.group_id,
                        Cause.OFFSETS_SET_AHEAD,
                        number=change.value.offset - former.offset,
                        detail=f"{change.topic}-{change.partition}",
                    )

    def reply_at_once(self, event: ShardRequest | RuntimeEvent, now_ms: int, wall_ms: int) -> MachineReply | None:
        kind = KIND_AT_ONCE.get(type(event))
        if kind is None or not self.is_committed:
            return None
        request = cast("RequestOfGroup", event)
        step = self.begin(now_ms, wall_ms)
        kind.decide_at_once(step, self._groups.get(request.group_id), request)
        return step.replies[0] if step.replies else None

    def settled_heartbeat(self, event: RequestOfGroup) -> SettledHeartbeat | None:
        """The heartbeat `event` as a value for `prolong_session`, if it only prolongs the session of its member;
        otherwise None. Nothing is changed, and no clock is read."""
        group = self._groups.get(event.group_id)
        if group is None:
            return None
        return KIND_OF_GROUP[type(group)].settled_heartbeat(self.begin(0, 0), group, event)

    def prolong_session(self, heartbeat: SettledHeartbeat, now_ms: int) -> bool:
        """Handle a heartbeat that repeats a settled one. Returns False, and changes nothing, if the heartbeat needs a
        step of its own."""
        group = heartbeat.group
        if (
            self.config is not heartbeat.config
            or self._groups.get(heartbeat.timer.group_id) is not group
            or self._current_image() is not heartbeat.image
        ):
            return False
        kind = KIND_OF_GROUP[type(group)]
        return (
            kind.is_settled(group, heartbeat)
            and (kind.is_ahead_of_log or self.is_committed)
            and self._timers.postpone(heartbeat.timer, now_ms + heartbeat.timeout_ms)
        )

    def _take_target(self, step: GroupStep, event: TargetComputed) -> None:
        """Store a target assignment that a thread has computed. The timer of the computation stays cancelled even if
        the log refuses the records, so that a thread may compute the target again."""
        group = self._groups.get(event.group_id)
        if group is not None:
            KIND_OF_GROUP[type(group)].decide(step, group, event)

    def _restore_timers_if_refused(self, step: GroupStep, kind: GroupKind[Group, RequestOfGroup]) -> None:
        if step.changes and not kind.is_ahead_of_log:
            step.when_committed(TimersRestored(self._timers.changed))

    def on_loaded(self, step: GroupStep) -> None:
        self._timers.schedule(EXPIRY_KEY, step.now_ms + self.config.offsets_retention_check_interval_ms)
        for group in self._groups.values():
            KIND_OF_GROUP[type(group)].on_loaded(step, group)

    def on_unloaded(self, step: GroupStep) -> None:
        groups = list(self._groups.values())
        self._groups.clear()
        for group in groups:
            KIND_OF_GROUP[type(group)].on_unloaded(step, group)

    def next_timer_ms(self) -> int | None:
        return self._timers.next_deadline_ms()

    def fire_timer(self, step: GroupStep) -> None:
        key = self._timers.pop_due(step.now_ms)
        if key is None:
            return
        if key == EXPIRY_KEY:
            self._timers.schedule(EXPIRY_KEY, step.now_ms + self.config.offsets_retention_check_interval_ms)
            if not self._expiring:
                self._expiring.extend(self._groups)
        if key in (EXPIRY_KEY, EXPIRY_CONTINUED_KEY):
            if not continue_expiry(step, self._offsets, self._expiring):
                step.when_committed(ExpiryContinued(self._expiring))
            return
        group = self._groups.get(key.group_id)
        if group is not None:
            kind = KIND_OF_GROUP[type(group)]
            kind.on_timer(step, group, key)
            self._restore_timers_if_refused(step, kind)

    # Reading

    @property
    def completed_rebalances(self) -> int:
        """The number of rebalances of classic groups completed since this shard was loaded."""
        return self._rebalances.completed

    @property
    def begun_rebalances(self) -> Mapping[str, int]:
        """The number of rebalances begun since this shard was loaded, by the kind of the group. Classic groups are not
        counted."""
        return self._rebalances.begun

    def group_counts(self) -> GroupCounts:
        states = Counter((group.type_name, group.state_name) for group in self._groups.values())
        return GroupCounts(states, sum(group.members_count for group in self._groups.values()), self._offsets.count)

    def offsets(self, request: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup | AllOffsets:
        """The OffsetFetch response with the committed offsets of a group, without those of open transactions. The
        request names topics by name."""
        error = fetch_refusal(self.group(request.group_id), request)
        if error is not ErrorCode.NONE:
            return OffsetFetchResponseGroup(group_id=request.group_id, error_code=error)
        return offsets_of(self._offsets.committed_offsets(request.group_id), request)

    def group(self, group_id: str) -> Group | None:
        """The group with this id if its first record is committed, so that readers may see it; None otherwise. The
        caller must not change the group."""
        group = self._groups.get(group_id)
        return group if group is not None and self._is_visible(group) else None

    def last_request_times(self, group_id: str, most: int) -> dict[str, int]:
        """The time (ms, monotonic clock) of the last request of each member of a group, by member id, for at most
        `most` members."""
        group = self.group(group_id)
        if group is None:
            return {}
        kind = KIND_OF_GROUP[type(group)]
        timeouts_ms = kind.session_timeouts_ms(self.config, self._current_image(), group)
        found: dict[str, int] = {}
        for member_id, timeout_ms in islice(timeouts_ms, most):
            deadline_ms = self._timers.deadline_ms(TimerKey(kind.session_timer, group_id, member_id))
            if deadline_ms is not None:
                found[member_id] = deadline_ms - timeout_ms
        return found

    def commit_times(self, group_id: str, most: int) -> dict[TopicPartition, int]:
        """The wall-clock time (ms) of the commit of each offset of a group, for at most `most` offsets."""
        if self.group(group_id) is None:
            return {}
        offsets = self._offsets.committed_offsets(group_id).offsets
        return {key: committed.commit_ms for key, committed in islice(offsets.items(), most)}

    def offsets_in_force(self, group_id: str) -> GroupOffsets:
        """The committed offsets of a group. The caller must not change the result."""
        return self._offsets.committed_offsets(group_id)

    def list_groups(self, states: list[str], types: list[str]) -> Iterator[ListedGroup | None]:
        """Yield the groups with the given states and types, and None for each group that is left out. An empty list
        does not filter. The caller may pause between groups, because there may be many; the groups may change in the
        meantime."""
        wanted_states, wanted_types = {state.lower() for state in states}, {name.lower() for name in types}
        for group in [*self._groups.values()]:
            is_listed = (
                self._is_visible(group)
                and (not wanted_states or group.state_name.lower() in wanted_states)
                and (not wanted_types or group.type_name in wanted_types)
            )
            yield list_entry(group) if is_listed else None

    def _is_visible(self, group: Group) -> bool:
        return group.visible_from is not None and group.visible_from <= self.committed_end_offset


def list_entry(group: Group) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state_name,
        group_type=group.type_name,
    )
