"""The machine over one partition of `__share_group_state`.

    request            refused with                                                        writes
    InitializeState    FENCED_STATE_EPOCH below the state epoch, unknown partition         a snapshot, batches empty
    WriteState         INVALID_REQUEST without state, FENCED_LEADER_EPOCH,                 an update; a snapshot after
                       FENCED_STATE_EPOCH, unknown partition                               `updates_per_snapshot`
    ReadState          INVALID_REQUEST without state, FENCED_LEADER_EPOCH, unknown         the new leader epoch
    ReadStateSummary   unknown partition                                                   nothing
    DeleteState        unknown partition                                                   a tombstone
    TopicsDeleted                                                                          tombstones

The state of a key is its last snapshot and the updates after it. Every `prune_interval_ms` the records before the first
one that a state needs are deleted from the log. New snapshots of states that do not change let that offset move.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from moldau.coordinator.runtime.machine import Waiter
from moldau.coordinator.runtime.shard import Shard
from moldau.coordinator.runtime.step import ReplyWhenCommitted, Step, Timers, write_error
from moldau.coordinator.share_coordinator.events import (
    NO_EPOCH,
    DeleteState,
    InitializeState,
    LogPruned,
    PruneLog,
    ReadState,
    ReadStateSummary,
    ShareStateConfig,
    ShareStateEvent,
    StateAnswer,
    StateRequest,
    TopicsDeleted,
    WriteState,
)
from moldau.coordinator.share_coordinator.records import NEXT, ShareStateChange, record_of
from moldau.coordinator.share_coordinator.state import (
    NO_OFFSET,
    ShareKey,
    ShareState,
    StateUpdate,
    combined_batches,
    updated_state,
)
from moldau.protocol.errors import ErrorCode
from moldau.protocol.record_builder import Record

CHANGES_AT_ONCE: Final = 500
"""The most records that one batch has if many share partitions change at once."""
PAUSE_MS: Final = 100
"""The pause (ms) after a batch of `CHANGES_AT_ONCE` records, before the next batch."""
NEGATIVE_PARTITION: Final = "The partition id cannot be a negative number."
READ_UNINITIALIZED: Final = "Read operation on uninitialized share partition not allowed."
WRITE_UNINITIALIZED: Final = "Write operation on uninitialized share partition not allowed."


class StateTimer(Enum):
    PRUNING = auto()
    """The timer of the next deletion of redundant records."""
    COLD_SNAPSHOTS = auto()
    """The timer of the next search for states whose last snapshot is old."""
    DELETIONS = auto()
    """The timer of the next batch of tombstones for deleted topics."""


class KeyEntry(NamedTuple):
    """The state of a share partition, with values that follow from its records but are not part of the state."""

    state: ShareState
    leader_epoch: int
    """The highest leader epoch in the records of the share partition. `state_epoch` is the highest state epoch in
    them."""
    state_epoch: int
    updates_count: int
    """The number of updates since the last snapshot that was written because of their number."""
    needed_offset: int
    """The first offset of the log that the state needs: the offset of the last snapshot."""


@dataclass(slots=True)
class StateStep(Step[ShareStateChange]):
    entries: dict[ShareKey, KeyEntry]
    config: ShareStateConfig

    def answer(self, waiter: Waiter, answer: StateAnswer) -> None:
        """Send an answer when every record written before it, in this step too, is committed. If the log refuses the
        records, send the error."""
        self.when_committed(ReplyWhenCommitted(waiter, answer, lambda error: StateAnswer(write_error(error))))


class ShareStateShard(Shard[ShareStateEvent, ShareStateChange, StateStep]):
    """The machine of the share coordinator: a `StateMachine[ShareStateEvent, ShareStateChange]`."""

    def __init__(
        self,
        config: ShareStateConfig,
        committed_end_offset: int,
        partition_count: Callable[[bytes], int | None],
    ) -> None:
        """`partition_count` returns the number of partitions of the topic with an id; None if no topic has the id."""
        super().__init__(committed_end_offset)
        self.config = config
        """The settings of the share coordinator. The broker may replace them at any time."""
        self._partition_count = partition_count
        self._entries: dict[ShareKey, KeyEntry] = {}
        self._timers: Timers[StateTimer] = Timers()
        self._replayed_end_offset = 0
        self._batch_offset = 0
        """The offset at which the batch that is being replayed begins, or a lower offset."""
        self._tombstone_offset = 0
        self.pruned_offset = 0
        """The offset below which the log was last deleted; 0 if nothing was deleted since this shard was loaded."""
        self.writes = 0
        """The number of changes of delivery states and of leader epochs that were written since this shard was
        loaded."""
        self._deleted_topics: frozenset[bytes] = frozenset()

    # Replaying

    def replay(self, change: ShareStateChange, end_offset: int) -> None:
        if end_offset != self._replayed_end_offset:
            self._batch_offset, self._replayed_end_offset = self._replayed_end_offset, end_offset
        offset = self._batch_offset if change.offset == NEXT else change.offset
        key, value = change.key, change.value
        before = self._entries.get(key)
        if value is None:
            self._entries.pop(key, None)
            self._tombstone_offset = offset
        elif isinstance(value, StateUpdate):
            if before is None:
                self._entries[key] = KeyEntry(value.as_state(), value.leader_epoch, NO_EPOCH, 1, offset)
            else:
                self._entries[key] = before._replace(
                    state=updated_state(before.state, value),
                    leader_epoch=max(before.leader_epoch, value.leader_epoch),
                    updates_count=before.updates_count + 1,
                )
        elif before is None:
            self._entries[key] = KeyEntry(value, value.leader_epoch, value.state_epoch, 0, offset)
        else:
            is_due = before.updates_count >= self.config.updates_per_snapshot
            self._entries[key] = KeyEntry(
                value,
                max(before.leader_epoch, value.leader_epoch),
                max(before.state_epoch, value.state_epoch),
                0 if is_due else before.updates_count,
                offset,
            )

    def commit(self) -> None:
        """Do nothing: readers see no uncommitted state, because every answer waits for the commit of the records before
        it."""

    # Deciding

    @property
    def commit_timeout_ms(self) -> int:
        return self.config.write_timeout_ms

    def begin(self, now_ms: int, wall_ms: int) -> StateStep:
        return StateStep(now_ms, wall_ms, self._entries, self.config)

    def record_of(self, change: ShareStateChange, wall_ms: int) -> Record:
        return record_of(change, wall_ms)

    def decide(self, step: StateStep, request: ShareStateEvent) -> None:
        match request:
            case TopicsDeleted(topic_ids):
                self._deleted_topics |= topic_ids
                self._delete_next(step)
            case LogPruned(offset):
                self.pruned_offset = max(self.pruned_offset, offset)
            case _:
                self._answer(step, request)

    def _answer(self, step: StateStep, request: StateRequest) -> None:
        refusal = refused(step, request, self._partition_count)
        if refusal is not None:
            step.answer(request.waiter, refusal)
            return
        match request:
            case InitializeState():
                initialize(step, request)
            case WriteState():
                write(step, request)
                self.writes += 1
            case ReadState():
                read(step, request)
                self.writes += bool(step.changes)
            case ReadStateSummary(waiter, key):
                step.answer(waiter, state_summary(step.entries.get(key)))
            case DeleteState(waiter, key):
                if key in step.entries:
                    step.write(ShareStateChange(key, None))
                step.answer(waiter, StateAnswer())

    def on_loaded(self, step: StateStep) -> None:
        self._timers.schedule(StateTimer.PRUNING, step.now_ms + self.config.prune_interval_ms)
        self._timers.schedule(StateTimer.COLD_SNAPSHOTS, step.now_ms + self.config.cold_snapshot_interval_ms)

    def on_unloaded(self, step: StateStep) -> None:
        """Do nothing: all waiting requests wait for a commit, and the base class refuses them."""

    def next_timer_ms(self) -> int | None:
        return self._timers.next_deadline_ms()

    def fire_timer(self, step: StateStep) -> None:
        match self._timers.pop_due(step.now_ms):
            case StateTimer.PRUNING:
                step.when_committed(PruneLogLater(self.redundant_end_offset(), self.pruned_offset))
                self._timers.schedule(StateTimer.PRUNING, step.now_ms + self.config.prune_interval_ms)
            case StateTimer.COLD_SNAPSHOTS:
                is_done = snapshot_cold(step)
                pause_ms = self.config.cold_snapshot_interval_ms if is_done else PAUSE_MS
                self._timers.schedule(StateTimer.COLD_SNAPSHOTS, step.now_ms + pause_ms)
            case StateTimer.DELETIONS:
                self._delete_next(step)
            case None:
                pass

    def redundant_end_offset(self) -> int:
        """The offset below which no state needs a record; 0 if nothing was replayed."""
        if not self._entries:
            return self._tombstone_offset
        return min(entry.needed_offset for entry in self._entries.values())

    def _delete_next(self, step: StateStep) -> None:
        """Write tombstones for the states of deleted topics, at most `CHANGES_AT_ONCE` at once."""
        found = [key for key in step.entries if key.topic_id in self._deleted_topics]
        step.write(*(ShareStateChange(key, None) for key in found[:CHANGES_AT_ONCE]))
        if found:
            # Once more also after the last ones: the log may have refused them.
            self._timers.schedule(StateTimer.DELETIONS, step.now_ms + PAUSE_MS)
        else:
            self._deleted_topics = frozenset()

    # Reading

    def states(self) -> Iterator[tuple[ShareKey, ShareState]]:
        """The state of every share partition after all records, including uncommitted ones, for tests."""
        return ((key, entry.state) for key, entry in self._entries.items())


class PruneLogLater(NamedTuple):
    """The outcome that commands the deletion of redundant records, once the snapshots that replace them are
    committed."""

    offset: int
    pruned_offset: int

    def on_committed(self, step: StateStep) -> None:
        if self.offset > self.pruned_offset:
            step.command(PruneLog(self.offset))

    def on_failed(self, step: StateStep, error: ErrorCode) -> None:
        """Do nothing: the next timer of the deletion tries again."""


def refused(
    step: StateStep, request: StateRequest, partition_count: Callable[[bytes], int | None]
) -> StateAnswer | None:
    """The answer with the error of a request that is refused; None if the request is valid."""
    key, entry = request.key, step.entries.get(request.key)
    if key.partition < 0:
        return StateAnswer(ErrorCode.INVALID_REQUEST, NEGATIVE_PARTITION)
    if entry is None and isinstance(request, (ReadState, WriteState)):
        message = READ_UNINITIALIZED if isinstance(request, ReadState) else WRITE_UNINITIALIZED
        return StateAnswer(ErrorCode.INVALID_REQUEST, message)
    if entry is not None:
        if isinstance(request, (ReadState, WriteState)) and NO_EPOCH != request.leader_epoch < entry.leader_epoch:
            return StateAnswer(ErrorCode.FENCED_LEADER_EPOCH)
        if isinstance(request, (InitializeState, WriteState)) and NO_EPOCH != request.state_epoch < entry.state_epoch:
            return StateAnswer(ErrorCode.FENCED_STATE_EPOCH)
    count = partition_count(key.topic_id)
    if count is None or key.partition >= count:
        return StateAnswer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return None


def initialize(step: StateStep, request: InitializeState) -> None:
    """Replace the state of a share partition by a new state that begins at the requested offset. Its number of
    delivered records is 0 if that offset is known, and unknown (-1) otherwise."""
    before = step.entries.get(request.key)
    state = ShareState(
        snapshot_epoch=0 if before is None else before.state.snapshot_epoch + 1,
        state_epoch=request.state_epoch,
        leader_epoch=0,
        start_offset=request.start_offset,
        delivery_complete_count=-1 if request.start_offset == NO_OFFSET else 0,
        create_ms=step.wall_ms,
        write_ms=step.wall_ms,
    )
    step.write(ShareStateChange(request.key, state))
    step.answer(request.waiter, StateAnswer())


def write(step: StateStep, request: WriteState) -> None:
    entry = step.entries[request.key]
    update = StateUpdate(
        entry.state.snapshot_epoch,
        entry.state.leader_epoch,
        request.start_offset,
        request.delivery_complete_count,
        request.batches,
    )
    store_update(step, request.key, entry, update)
    step.answer(request.waiter, StateAnswer())


def read(step: StateStep, request: ReadState) -> None:
    """Answer a partition's leader with the state. A later leader epoch is stored first, so that the earlier leader is
    fenced from then on."""
    entry = step.entries[request.key]
    state = entry.state
    # DIVERGES: Apache Kafka compares with the highest epoch that it knows, and writes nothing for the leader that reads
    # after an initialization. The next coordinator, which may only have the snapshot of that, knows no epoch then.
    if request.leader_epoch not in (NO_EPOCH, state.leader_epoch):
        update = StateUpdate(
            state.snapshot_epoch, request.leader_epoch, state.start_offset, state.delivery_complete_count
        )
        store_update(step, request.key, entry, update)
    answer = StateAnswer(state_epoch=state.state_epoch, start_offset=state.start_offset, batches=state.batches)
    step.answer(request.waiter, answer)


def store_update(step: StateStep, key: ShareKey, entry: KeyEntry, update: StateUpdate) -> None:
    """Write an update of a state. If the state has had `updates_per_snapshot` updates since its last snapshot, write a
    snapshot instead."""
    if entry.updates_count < step.config.updates_per_snapshot:
        merged = combined_batches((), update.batches, update.start_offset)
        step.write(ShareStateChange(key, update._replace(batches=merged)))
        return
    snapshot = updated_state(entry.state, update)._replace(
        snapshot_epoch=entry.state.snapshot_epoch + 1, create_ms=step.wall_ms, write_ms=step.wall_ms
    )
    step.write(ShareStateChange(key, snapshot))


def state_summary(entry: KeyEntry | None) -> StateAnswer:
    """The answer with the summary of a state: its epochs, start offset and count. A share partition without a state has
    the summary of an uninitialized state."""
    if entry is None:
        return StateAnswer()
    state = entry.state
    return StateAnswer(
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
    )


def snapshot_cold(step: StateStep) -> bool:
    """Write new snapshots of states whose last snapshot is old, at most `CHANGES_AT_ONCE` in one step. Returns False if
    there may be more.

    Nothing is written if the last snapshot of every state was such a one already, as in Apache Kafka: new snapshots
    would make few further records redundant.
    """
    if all(entry.state.create_ms != entry.state.write_ms for entry in step.entries.values()):
        return True
    oldest_ms = step.wall_ms - step.config.cold_snapshot_interval_ms
    for key, (state, *_) in step.entries.items():
        if state.write_ms <= oldest_ms:
            cold = state._replace(snapshot_epoch=state.snapshot_epoch + 1, write_ms=step.wall_ms)
            step.write(ShareStateChange(key, cold))
            if len(step.changes) == CHANGES_AT_ONCE:
                return False
    return True
