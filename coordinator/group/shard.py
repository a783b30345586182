"""The coordinator of the groups of one `__consumer_offsets` partition: events in, effects out.

    event ──▶ step ──▶ records (one atomic batch) ──appended──▶ replay ──committed──▶ replies that waited for it
                 └───▶ replies that need no record

The shell owns the log: it appends the records of a step and says at once how that went (`Appended`, `AppendRefused`),
and later how far the log is committed (`Committed`). Nothing else is stepped between a step with records and its
`Appended`. A shard that loses its partition is thrown away; a new one loads from the log.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from coordinator.classic.group import Group
from coordinator.classic.group_loading import give_up, restore, take_up
from coordinator.classic.group_state import DEAD, FORMER_STATES
from coordinator.classic.heartbeat import heartbeat, session_is_over
from coordinator.classic.join import join
from coordinator.classic.leave import leave
from coordinator.classic.rebalance import join_time_is_up, sync_time_is_up
from coordinator.classic.sync import sync
from coordinator.group import events
from coordinator.group.config import GroupConfig
from coordinator.group.description import describe, describe_absent, is_listed, list_entry
from coordinator.group.records import Change, GroupChange, OffsetChange, record_of
from coordinator.group.step import Outcome, Turn
from coordinator.offsets.offset_commit import commit_offsets
from coordinator.offsets.offset_delete import delete_groups, delete_offsets, topics_deleted
from coordinator.offsets.offset_expiry import expire
from coordinator.offsets.offset_fetch import fetch_stable_offsets, offsets_of
from coordinator.offsets.offset_store import OffsetStore
from coordinator.runtime.effects import Effects
from coordinator.runtime.timers import TimerKey, TimerKind, Timers
from protocol.errors import ErrorCode
from protocol.messages.describe_groups import DescribedGroup
from protocol.messages.list_groups import ListedGroup
from protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup

EXPIRY_KEY: Final = TimerKey(TimerKind.EXPIRY)
EXPIRED_RECORDS_MAX: Final = 5_000
"""Tombstones in one batch, about; the rest follows in the next."""


@dataclass(slots=True)
class Write:
    """A batch that is appended and not committed, or not yet appended."""

    end_offset: int
    deadline_ms: int
    changes: list[Change]
    outcomes: list[Outcome]


class Census(NamedTuple):
    """How many there are."""

    states: Mapping[str, int]
    """Groups by their state, in Kafka's words."""
    members: int
    offsets: int


class GroupShard:
    def __init__(self, config: GroupConfig, committed_end_offset: int = 0) -> None:
        self.config = config
        """May be replaced at any time."""
        self.is_loaded = False
        self.completed_rebalances = 0
        """Since this shard was loaded, as is the next."""
        self.committed_offsets = 0
        self._groups: dict[str, Group] = {}
        self._offsets = OffsetStore()
        self._timers = Timers()
        self._committed_end_offset = committed_end_offset
        self._unappended: Write | None = None
        self._uncommitted: deque[Write] = deque()

    # Loading

    def replay(self, change: Change, end_offset: int) -> None:
        """A record of the log, whose batch ends at `end_offset`: the only way in which what is stored changes."""
        match change:
            case OffsetChange():
                if change.value is not None and change.group_id not in self._groups:
                    self._groups[change.group_id] = Group(change.group_id, None)
                self._offsets.replay(change, end_offset)
                self.committed_offsets += self.is_loaded and change.value is not None
                if end_offset <= self._committed_end_offset:
                    self._offsets.commit(self._committed_end_offset)
                self._appear(change.group_id, end_offset)
            case GroupChange(group_id, None):
                self._forget(group_id)
            case GroupChange(group_id, value) if value is not None:
                if not self.is_loaded:
                    self._groups[group_id] = restore(group_id, value)
                self._appear(group_id, end_offset)

    def _appear(self, group_id: str, end_offset: int) -> None:
        group = self._groups.get(group_id)
        if group is not None and group.visible_from is None:
            group.visible_from = end_offset

    def _forget(self, group_id: str) -> None:
        group = self._groups.pop(group_id, None)
        if group is not None:
            assert group.state in FORMER_STATES[DEAD] or not self.is_loaded, "only empty groups are deleted"
            for member_id in group.pending_members:
                self._timers.cancel(TimerKey(TimerKind.SESSION, group_id, member_id))

    # Stepping

    def next_deadline_ms(self) -> int | None:
        """When a `Tick` is due."""
        timer_ms = self._timers.next_deadline_ms()
        if not self._uncommitted:
            return timer_ms
        write_ms = self._uncommitted[0].deadline_ms
        return write_ms if timer_ms is None else min(timer_ms, write_ms)

    def step(self, event: events.Event, now_ms: int, wall_ms: int) -> Effects:
        """Decide: `now_ms` is the clock of the timers, `wall_ms` that of the records."""
        turn = Turn(
            self.config,
            self._groups,
            self._offsets,
            self._timers,
            now_ms,
            wall_ms,
        )
        assert self._unappended is None or isinstance(event, (events.Appended, events.AppendRefused)), (
            "an append is reported before anything else happens"
        )
        self._decide(turn, event)
        self._keep(turn)
        self.completed_rebalances += turn.completed_rebalances
        return Effects([record_of(change, wall_ms) for change in turn.changes], turn.replies, turn.notes)

    def _decide(self, turn: Turn, event: events.Event) -> None:
        """Who decides about each event; the frequent ones first."""
        match event:
            case events.Heartbeat():
                heartbeat(turn, event)
            case events.CommitOffsets():
                commit_offsets(turn, event)
            case events.Appended(end_offset):
                self._appended(turn, end_offset)
            case events.Committed(end_offset):
                self._committed_end_offset = max(self._committed_end_offset, end_offset)
                self._advance(turn)
            case events.Tick():
                self._tick(turn)
            case events.FetchStableOffsets():
                fetch_stable_offsets(turn, event)
            case events.Join():
                join(turn, event)
            case events.Sync():
                sync(turn, event)
            case events.Leave():
                leave(turn, event)
            case events.DeleteOffsets():
                delete_offsets(turn, event)
            case events.DeleteGroups():
                delete_groups(turn, event)
            case events.TopicsDeleted():
                topics_deleted(turn, event)
            case events.AppendRefused(error):
                self._refused(turn, error)
            case events.Loaded():
                self._loaded(turn)
            case events.Unloaded():
                self._unloaded(turn)

    def _keep(self, turn: Turn) -> None:
        """Hold what a step wrote, and what it promised, until the log has spoken."""
        if turn.changes:
            deadline_ms = turn.now_ms + self.config.offsets_commit_timeout_ms
            self._unappended = Write(-1, deadline_ms, turn.changes, turn.outcomes)
        elif turn.outcomes and self._uncommitted:
            self._uncommitted[-1].outcomes.extend(turn.outcomes)
        else:
            for outcome in turn.outcomes:
                outcome.committed(turn)
            assert not turn.changes, "what follows a commit writes nothing"

    def _tick(self, turn: Turn) -> None:
        while self._uncommitted and self._uncommitted[0].deadline_ms <= turn.now_ms:
            self._fail(turn, self._uncommitted.popleft(), ErrorCode.REQUEST_TIMED_OUT)
        if turn.changes:
            return
        key = self._timers.pop_due(turn.now_ms)
        if key is None:
            return
        if key.kind is TimerKind.EXPIRY:
            is_done = expire(turn, EXPIRED_RECORDS_MAX)
            interval_ms = self.config.offsets_retention_check_interval_ms if is_done else 0
            self._timers.schedule(EXPIRY_KEY, turn.now_ms + interval_ms)
            return
        group = self._groups.get(key.group_id)
        if group is None:
            return
        match key.kind:
            case TimerKind.SESSION:
                session_is_over(turn, group, key.member_id)
            case TimerKind.JOIN:
                join_time_is_up(turn, group)
            case TimerKind.SYNC:
                sync_time_is_up(turn, group)

    def _appended(self, turn: Turn, end_offset: int) -> None:
        write = self._unappended
        assert write is not None, "something was appended that nobody wrote"
        self._unappended = None
        for change in write.changes:
            self.replay(change, end_offset)
        write.end_offset = end_offset
        write.changes = []
        self._uncommitted.append(write)
        self._advance(turn)

    def _refused(self, turn: Turn, error: ErrorCode) -> None:
        write = self._unappended
        assert write is not None, "something was refused that nobody wrote"
        self._unappended = None
        self._fail(turn, write, error)

    def _fail(self, turn: Turn, write: Write, error: ErrorCode) -> None:
        for outcome in write.outcomes:
            outcome.failed(turn, error)

    def _advance(self, turn: Turn) -> None:
        """Take in what is committed, and follow up on it in the order it was written."""
        self._offsets.commit(self._committed_end_offset)
        while self._uncommitted and self._uncommitted[0].end_offset <= self._committed_end_offset:
            for outcome in self._uncommitted.popleft().outcomes:
                outcome.committed(turn)

    def _loaded(self, turn: Turn) -> None:
        self.is_loaded = True
        self._timers.schedule(EXPIRY_KEY, turn.now_ms + self.config.offsets_retention_check_interval_ms)
        for group in self._groups.values():
            take_up(turn, group)

    def _unloaded(self, turn: Turn) -> None:
        groups = list(self._groups.values())
        self._groups.clear()
        for group in groups:
            give_up(turn, group)
        while self._uncommitted:
            self._fail(turn, self._uncommitted.popleft(), ErrorCode.NOT_COORDINATOR)

    # Reading

    def census(self) -> Census:
        states = Counter(group.state.value for group in self._groups.values())
        return Census(states, sum(len(group.members) for group in self._groups.values()), self._offsets.count)

    def offsets(self, request: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
        """Committed offsets, topics by name."""
        return offsets_of(self._offsets.committed(request.group_id), request)

    def describe(self, group_id: str, version: int) -> DescribedGroup:
        group = self._groups.get(group_id)
        if group is None or not self._is_visible(group):
            return describe_absent(group_id, version)
        return describe(group)

    def list_groups(self, states: list[str], types: list[str]) -> list[ListedGroup]:
        entries = (list_entry(group) for group in self._groups.values() if self._is_visible(group))
        return [entry for entry in entries if is_listed(entry, states, types)]

    def _is_visible(self, group: Group) -> bool:
        return group.visible_from is not None and group.visible_from <= self._committed_end_offset
