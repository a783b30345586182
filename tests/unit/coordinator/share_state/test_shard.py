"""The machine of share state: what it answers, what it writes, and from which offset its log is needed."""

from __future__ import annotations

from moldau.coordinator.runtime.log_reading import LogReader
from moldau.coordinator.runtime.machine import Appended, AppendRefused, Committed, Effects, Loaded, Tick, Waiter
from moldau.coordinator.share_state.events import (
    DeleteState,
    InitializeState,
    LogPruned,
    PruneLog,
    ReadState,
    ReadStateSummary,
    ShareStateConfig,
    ShareStateEvent,
    StateAnswer,
    TopicsDeleted,
    WriteState,
)
from moldau.coordinator.share_state.records import ShareStateChange, ShareStateRecordReader
from moldau.coordinator.share_state.shard import CHANGES_AT_ONCE, ShareStateShard
from moldau.coordinator.share_state.state import ShareKey, ShareState, StateBatch, StateUpdate
from moldau.protocol.errors import ErrorCode
from moldau.protocol.record_builder import build_batch

TOPIC, OTHER = b"t" * 16, b"o" * 16
KEY = ShareKey("g", TOPIC, 0)
PARTITIONS = {TOPIC: 1_000, OTHER: 1}
CONFIG = ShareStateConfig(updates_per_snapshot=2, prune_interval_ms=1_000, cold_snapshot_interval_ms=5_000)
WAITER = Waiter("client", 0)
ACCEPTED = (StateBatch(0, 4, 2, 1),)


class Stage:
    """A machine, and its log, which commits at once unless told otherwise."""

    def __init__(self, config: ShareStateConfig = CONFIG) -> None:
        self.config = config
        self.shard = ShareStateShard(config, 0, PARTITIONS.get)
        self.batches: list[bytes] = []
        self.end_offset = 0
        self.now_ms = 0
        self.commits = True
        self.commands: list[object] = []
        self.shard.step(Loaded(), 0, 0)

    def step(self, event: ShareStateEvent | Tick | Committed) -> list[object]:
        """The responses to an event, and to those that waited for it."""
        replies: list[object] = []
        effects = self._take(self.shard.step(event, self.now_ms, self.now_ms), replies)
        while effects.has_batch:
            self.batches.append(build_batch(effects.records, base_offset=self.end_offset))
            self.end_offset += len(effects.records)
            committed = self.end_offset if self.commits else 0
            effects = self._take(
                self.shard.step(Appended(self.end_offset, committed), self.now_ms, self.now_ms), replies
            )
        return replies

    def _take(self, effects: Effects, replies: list[object]) -> Effects:
        replies.extend(reply.response for reply in effects.replies)
        self.commands.extend(effects.commands)
        return effects

    def tick(self, now_ms: int) -> None:
        self.now_ms = now_ms
        while (deadline := self.shard.next_deadline_ms()) is not None and deadline <= now_ms:
            self.step(Tick())

    def states(self) -> dict[ShareKey, ShareState]:
        return dict(self.shard.states())

    def reloaded(self) -> ShareStateShard:
        """The machine of the next leader."""
        shard = ShareStateShard(self.config, self.end_offset, PARTITIONS.get)
        reader = LogReader(0, ShareStateRecordReader())
        for batch in self.batches:
            for change, end_offset in reader.read(batch):
                shard.replay(change, end_offset)
        shard.step(Loaded(), self.now_ms, self.now_ms)
        return shard

    def initialize(self, key: ShareKey = KEY, state_epoch: int = 1, start_offset: int = -1) -> list[object]:
        return self.step(InitializeState(WAITER, key, state_epoch, start_offset))

    def write(
        self,
        batches: tuple[StateBatch, ...] = (),
        key: ShareKey = KEY,
        state_epoch: int = 1,
        leader_epoch: int = -1,
        start_offset: int = -1,
        complete_count: int = 0,
    ) -> list[object]:
        return self.step(WriteState(WAITER, key, state_epoch, leader_epoch, start_offset, complete_count, batches))

    def read(self, leader_epoch: int = -1, key: ShareKey = KEY) -> list[object]:
        return self.step(ReadState(WAITER, key, leader_epoch))


def test_what_is_written_is_read_again_also_by_the_next_leader() -> None:
    stage = Stage()
    assert stage.initialize() == [StateAnswer()]
    assert stage.read() == [StateAnswer(state_epoch=1)]
    assert stage.write(ACCEPTED, start_offset=0, complete_count=5) == [StateAnswer()]
    expected = StateAnswer(state_epoch=1, start_offset=0, batches=ACCEPTED)
    assert stage.read() == [expected]
    assert stage.step(ReadStateSummary(WAITER, KEY)) == [
        StateAnswer(state_epoch=1, start_offset=0, delivery_complete_count=5)
    ]
    assert dict(stage.reloaded().states()) == stage.states()


def test_an_answer_waits_until_what_it_says_is_committed() -> None:
    stage = Stage()
    stage.commits = False
    assert stage.initialize() == []
    assert stage.read() == [], "what it reads is not committed yet"
    assert stage.step(Committed(1)) == [StateAnswer(), StateAnswer(state_epoch=1)]


def test_a_refused_write_changes_nothing() -> None:
    stage = Stage()
    stage.initialize()
    before = stage.states()
    stage.shard.step(WriteState(WAITER, KEY, 1, -1, 0, 0, ACCEPTED), 0, 0)
    effects = stage.shard.step(AppendRefused(ErrorCode.NOT_ENOUGH_REPLICAS), 0, 0)
    assert [reply.response for reply in effects.replies] == [StateAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    assert stage.states() == before


def test_after_some_updates_comes_a_snapshot() -> None:
    stage = Stage()
    stage.initialize()
    for last in (4, 5, 6, 7):
        stage.write((StateBatch(0, last, 2, 1),), start_offset=0)
    values = []
    for batch in stage.batches:
        values += [each.change.value for each in LogReader(0, ShareStateRecordReader()).read(batch)]
    assert [type(value) for value in values] == [ShareState, StateUpdate, StateUpdate, ShareState, StateUpdate]
    assert values[3] == ShareState(1, 1, 0, 0, 0, (StateBatch(0, 6, 2, 1),))
    assert dict(stage.reloaded().states()) == stage.states()


def test_a_later_leader_fences_the_earlier_one() -> None:
    stage = Stage()
    stage.initialize()
    assert stage.read(leader_epoch=3) == [StateAnswer(state_epoch=1)]
    assert stage.read(leader_epoch=2) == [StateAnswer(ErrorCode.FENCED_LEADER_EPOCH)]
    assert stage.write(ACCEPTED, leader_epoch=2) == [StateAnswer(ErrorCode.FENCED_LEADER_EPOCH)]
    records = len(stage.batches)
    assert stage.read(leader_epoch=3) == [StateAnswer(state_epoch=1)]
    assert len(stage.batches) == records, "an epoch that is stored already needs no record"
    assert stage.write(ACCEPTED, leader_epoch=3) == [StateAnswer()]
    next_leader = stage.reloaded()
    effects = next_leader.step(ReadState(WAITER, KEY, 2), 0, 0)
    assert [reply.response for reply in effects.replies] == [StateAnswer(ErrorCode.FENCED_LEADER_EPOCH)]


def test_a_reset_fences_writers_of_the_earlier_state_epoch() -> None:
    stage = Stage()
    stage.initialize(state_epoch=5)
    stage.write(ACCEPTED, state_epoch=5, start_offset=0)
    assert stage.initialize(state_epoch=4) == [StateAnswer(ErrorCode.FENCED_STATE_EPOCH)]
    assert stage.initialize(state_epoch=6, start_offset=100) == [StateAnswer()]
    assert stage.write(ACCEPTED, state_epoch=5) == [StateAnswer(ErrorCode.FENCED_STATE_EPOCH)]
    assert stage.states()[KEY] == ShareState(1, 6, 0, 100, 0)


def test_an_earlier_leader_is_fenced_after_a_reset_too_when_the_records_before_it_are_pruned() -> None:
    stage = Stage()
    stage.initialize()
    stage.read(leader_epoch=3)
    before = len(stage.batches)
    stage.initialize(state_epoch=2, start_offset=100)
    stage.read(leader_epoch=3)
    next_leader = ShareStateShard(CONFIG, stage.end_offset, PARTITIONS.get)
    reader = LogReader(0, ShareStateRecordReader())
    for change, end_offset in reader.read(b"".join(stage.batches[before:])):
        next_leader.replay(change, end_offset)
    effects = next_leader.step(ReadState(WAITER, KEY, 2), 0, 0)
    assert [reply.response for reply in effects.replies] == [StateAnswer(ErrorCode.FENCED_LEADER_EPOCH)]


def test_requests_about_what_does_not_exist() -> None:
    stage = Stage()
    read_refused = "Read operation on uninitialized share partition not allowed."
    write_refused = "Write operation on uninitialized share partition not allowed."
    assert stage.read() == [StateAnswer(ErrorCode.INVALID_REQUEST, read_refused)]
    assert stage.write() == [StateAnswer(ErrorCode.INVALID_REQUEST, write_refused)]
    assert stage.step(ReadStateSummary(WAITER, KEY)) == [StateAnswer()]
    assert stage.step(DeleteState(WAITER, KEY)) == [StateAnswer()]
    negative = StateAnswer(ErrorCode.INVALID_REQUEST, "The partition id cannot be a negative number.")
    assert stage.initialize(KEY._replace(partition=-1)) == [negative]
    for key in (ShareKey("g", OTHER, 1), ShareKey("g", b"?" * 16, 0)):
        unknown = [StateAnswer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
        assert stage.initialize(key) == unknown
        assert stage.step(DeleteState(WAITER, key)) == unknown
        assert stage.step(ReadStateSummary(WAITER, key)) == unknown
    assert stage.batches == []


def test_deletion_forgets_the_epochs_too() -> None:
    stage = Stage()
    stage.initialize(state_epoch=5)
    assert stage.step(DeleteState(WAITER, KEY)) == [StateAnswer()]
    assert stage.states() == {}
    assert dict(stage.reloaded().states()) == {}
    assert stage.initialize(state_epoch=1) == [StateAnswer()]
    assert stage.states()[KEY].snapshot_epoch == 0


def test_the_state_of_a_deleted_topic_is_deleted() -> None:
    stage = Stage()
    keys = [ShareKey("g", TOPIC, partition) for partition in range(CHANGES_AT_ONCE + 1)]
    for key in [*keys, ShareKey("g", OTHER, 0)]:
        stage.initialize(key)
    stage.step(TopicsDeleted(frozenset({TOPIC})))
    assert len(stage.states()) == 2, "a batch of them at once"
    stage.tick(100)
    assert list(stage.states()) == [ShareKey("g", OTHER, 0)]


def test_the_log_is_pruned_up_to_the_first_snapshot_that_is_needed() -> None:
    stage = Stage()
    first, second = ShareKey("g", TOPIC, 0), ShareKey("g", TOPIC, 1)
    stage.initialize(first)
    stage.initialize(second)
    for _ in range(3):
        stage.write(key=first)
    assert stage.shard.redundant_end_offset() == 1, "the second key has its state since its first record"
    stage.tick(1_000)
    assert stage.commands == [PruneLog(1)]
    for _ in range(3):
        stage.write(key=second)
    assert stage.shard.redundant_end_offset() == 4, "the third update of the first key became a snapshot"
    assert stage.reloaded().redundant_end_offset() == 4
    stage.tick(2_000)
    assert stage.commands == [PruneLog(1), PruneLog(4)]
    stage.step(LogPruned(4))
    stage.tick(3_000)
    assert stage.commands == [PruneLog(1), PruneLog(4)], "nothing new is redundant"
    stage.step(DeleteState(WAITER, first))
    stage.step(DeleteState(WAITER, second))
    assert stage.shard.redundant_end_offset() == stage.end_offset - 1


def test_pruning_waits_until_the_snapshots_are_committed() -> None:
    stage = Stage()
    stage.initialize()
    stage.commits = False
    for _ in range(3):
        stage.write()
    stage.tick(1_000)
    assert stage.commands == []
    stage.step(Committed(stage.end_offset))
    assert stage.commands == [PruneLog(3)]


def test_a_state_that_does_not_change_gets_a_snapshot_so_that_the_log_can_be_pruned() -> None:
    stage = Stage()
    cold, hot = ShareKey("g", TOPIC, 0), ShareKey("g", TOPIC, 1)
    stage.initialize(cold, start_offset=7)
    stage.now_ms = 4_900
    stage.initialize(hot)
    stage.tick(5_000)
    assert stage.states()[cold] == ShareState(1, 1, 0, 7, 0, (), 0, 5_000)
    assert stage.states()[hot].snapshot_epoch == 0
    assert stage.shard.redundant_end_offset() == 1
    stage.tick(10_000)
    records = stage.end_offset
    assert all(state.write_ms != state.create_ms for state in stage.states().values())
    stage.tick(20_000)
    assert stage.end_offset == records, "all are cold: no further snapshot helps"


def test_an_update_without_its_snapshot_is_loaded_as_the_state() -> None:
    shard = ShareStateShard(CONFIG, 0, PARTITIONS.get)
    stage = Stage()
    stage.initialize()
    stage.write(ACCEPTED, start_offset=0, complete_count=5)
    (loaded,) = LogReader(1, ShareStateRecordReader()).read(stage.batches[1])
    shard.replay(loaded.change, loaded.end_offset)
    assert dict(shard.states()) == {KEY: ShareState(0, 0, 0, 0, 5, ACCEPTED)}


def test_what_a_log_tells_last_of_an_epoch_does_not_lower_it() -> None:
    """As in Apache Kafka the largest epochs count, whatever the snapshots say that follow."""
    shard = ShareStateShard(CONFIG, 0, PARTITIONS.get)
    for end_offset, (leader_epoch, state_epoch) in enumerate([(4, 6), (3, 5)], 1):
        snapshot = ShareState(end_offset, state_epoch, leader_epoch, 0, 0)
        shard.replay(ShareStateChange(KEY, snapshot, end_offset - 1), end_offset)
    shard.step(Loaded(), 0, 0)
    for request, error in (
        (WriteState(WAITER, KEY, 5, 4, 0, 0, ()), ErrorCode.FENCED_STATE_EPOCH),
        (WriteState(WAITER, KEY, 6, 3, 0, 0, ()), ErrorCode.FENCED_LEADER_EPOCH),
        (ReadState(WAITER, KEY, 3), ErrorCode.FENCED_LEADER_EPOCH),
    ):
        (reply,) = shard.step(request, 0, 0).replies
        assert reply.response == StateAnswer(error)


def test_a_snapshot_before_its_turn_leaves_the_count_of_updates() -> None:
    """As in Apache Kafka: a reset between the updates does not put off the snapshot that they call for."""
    stage = Stage()
    stage.initialize()
    stage.write(ACCEPTED, start_offset=0)
    stage.initialize(state_epoch=2, start_offset=0)
    stage.write(ACCEPTED, state_epoch=2, start_offset=0)
    assert stage.states()[KEY].snapshot_epoch == 1, "two updates are allowed"
    stage.write(ACCEPTED, state_epoch=2, start_offset=0)
    assert stage.states()[KEY].snapshot_epoch == 2
