"""The machine of share state: what it answers, what it writes, and from which offset its log is needed."""

from __future__ import annotations

from moldau.coordinator.runtime.log_reading import LogReader
from moldau.coordinator.runtime.machine import Loaded, Waiter
from moldau.coordinator.share_coordinator.events import (
    DeleteState,
    LogPruned,
    PruneLog,
    ReadState,
    ReadStateSummary,
    ShareStateConfig,
    StateAnswer,
    TopicsDeleted,
    WriteState,
)
from moldau.coordinator.share_coordinator.records import ShareStateChange, ShareStateRecordReader
from moldau.coordinator.share_coordinator.shard import CHANGES_AT_ONCE, ShareStateShard
from moldau.coordinator.share_coordinator.state import ShareKey, ShareState, StateBatch, StateUpdate
from moldau.protocol.errors import ErrorCode
from tests.support.machine_stage import WALL_MS
from tests.support.share_coordinator_stage import KEY, ShareCoordinatorStage

TOPIC, OTHER = KEY.topic_id, b"o" * 16
PARTITIONS = {TOPIC: 1_000, OTHER: 1}
CONFIG = ShareStateConfig(updates_per_snapshot=2, prune_interval_ms=1_000, cold_snapshot_interval_ms=5_000)
WAITER = Waiter("client", 0)
ACCEPTED = (StateBatch(0, 4, 2, 1),)


def new_stage() -> ShareCoordinatorStage:
    return ShareCoordinatorStage(CONFIG, PARTITIONS.get)


def test_what_is_written_is_read_again_also_by_the_next_leader() -> None:
    stage = new_stage()
    assert stage.initialize() == StateAnswer()
    assert stage.read() == StateAnswer(state_epoch=1)
    assert stage.write(ACCEPTED, start_offset=0, complete_count=5) == StateAnswer()
    expected = StateAnswer(state_epoch=1, start_offset=0, batches=ACCEPTED)
    assert stage.read() == expected
    assert stage.ask(ReadStateSummary(stage.waiter(), KEY)) == StateAnswer(
        state_epoch=1, start_offset=0, delivery_complete_count=5
    )
    assert dict(stage.loaded_copy().states()) == stage.states()


def test_an_answer_waits_until_what_it_says_is_committed() -> None:
    stage = new_stage()
    stage.is_held = True
    assert stage.initialize() is None
    assert stage.read() is None, "what it reads is not committed yet"
    stage.release()
    assert [*stage.replies.values()] == [StateAnswer(), StateAnswer(state_epoch=1)]


def test_a_refused_write_changes_nothing() -> None:
    stage = new_stage()
    stage.initialize()
    before = stage.states()
    stage.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    assert stage.write(ACCEPTED, start_offset=0) == StateAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert stage.states() == before


def test_after_some_updates_comes_a_snapshot() -> None:
    stage = new_stage()
    stage.initialize()
    for last in (4, 5, 6, 7):
        stage.write((StateBatch(0, last, 2, 1),), start_offset=0)
    values = [change.value for batch in stage.log for change in batch.changes]
    assert [type(value) for value in values] == [ShareState, StateUpdate, StateUpdate, ShareState, StateUpdate]
    assert values[3] == ShareState(1, 1, 0, 0, 0, (StateBatch(0, 6, 2, 1),), WALL_MS, WALL_MS)
    assert dict(stage.loaded_copy().states()) == stage.states()


def test_a_later_leader_fences_the_earlier_one() -> None:
    stage = new_stage()
    stage.initialize()
    assert stage.read(leader_epoch=3) == StateAnswer(state_epoch=1)
    assert stage.read(leader_epoch=2) == StateAnswer(ErrorCode.FENCED_LEADER_EPOCH)
    assert stage.write(ACCEPTED, leader_epoch=2) == StateAnswer(ErrorCode.FENCED_LEADER_EPOCH)
    records = len(stage.log)
    assert stage.read(leader_epoch=3) == StateAnswer(state_epoch=1)
    assert len(stage.log) == records, "an epoch that is stored already needs no record"
    assert stage.write(ACCEPTED, leader_epoch=3) == StateAnswer()
    next_leader = stage.loaded_copy()
    (reply,) = next_leader.step(ReadState(WAITER, KEY, 2), 0, 0).replies
    assert reply.response == StateAnswer(ErrorCode.FENCED_LEADER_EPOCH)


def test_a_reset_fences_writers_of_the_earlier_state_epoch() -> None:
    stage = new_stage()
    stage.initialize(state_epoch=5)
    stage.write(ACCEPTED, state_epoch=5, start_offset=0)
    assert stage.initialize(state_epoch=4) == StateAnswer(ErrorCode.FENCED_STATE_EPOCH)
    assert stage.initialize(state_epoch=6, start_offset=100) == StateAnswer()
    assert stage.write(ACCEPTED, state_epoch=5) == StateAnswer(ErrorCode.FENCED_STATE_EPOCH)
    assert stage.states()[KEY] == ShareState(1, 6, 0, 100, 0, (), WALL_MS, WALL_MS)


def test_an_earlier_leader_is_fenced_after_a_reset_too_when_the_records_before_it_are_pruned() -> None:
    stage = new_stage()
    stage.initialize()
    stage.read(leader_epoch=3)
    before = len(stage.log)
    stage.initialize(state_epoch=2, start_offset=100)
    stage.read(leader_epoch=3)
    next_leader = ShareStateShard(CONFIG, stage.end_offset, PARTITIONS.get)
    reader = LogReader(0, ShareStateRecordReader())
    for change, end_offset in reader.read(b"".join(batch.data for batch in stage.log[before:])):
        next_leader.replay(change, end_offset)
    (reply,) = next_leader.step(ReadState(WAITER, KEY, 2), 0, 0).replies
    assert reply.response == StateAnswer(ErrorCode.FENCED_LEADER_EPOCH)


def test_requests_about_what_does_not_exist() -> None:
    stage = new_stage()
    read_refused = "Read operation on uninitialized share partition not allowed."
    write_refused = "Write operation on uninitialized share partition not allowed."
    assert stage.read() == StateAnswer(ErrorCode.INVALID_REQUEST, read_refused)
    assert stage.write() == StateAnswer(ErrorCode.INVALID_REQUEST, write_refused)
    assert stage.ask(ReadStateSummary(stage.waiter(), KEY)) == StateAnswer()
    assert stage.ask(DeleteState(stage.waiter(), KEY)) == StateAnswer()
    negative = StateAnswer(ErrorCode.INVALID_REQUEST, "The partition id cannot be a negative number.")
    assert stage.initialize(KEY._replace(partition=-1)) == negative
    for key in (ShareKey("g", OTHER, 1), ShareKey("g", b"?" * 16, 0)):
        unknown = StateAnswer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert stage.initialize(key) == unknown
        assert stage.ask(DeleteState(stage.waiter(), key)) == unknown
        assert stage.ask(ReadStateSummary(stage.waiter(), key)) == unknown
    assert stage.log == []


def test_deletion_forgets_the_epochs_too() -> None:
    stage = new_stage()
    stage.initialize(state_epoch=5)
    assert stage.ask(DeleteState(stage.waiter(), KEY)) == StateAnswer()
    assert stage.states() == {}
    assert dict(stage.loaded_copy().states()) == {}
    assert stage.initialize(state_epoch=1) == StateAnswer()
    assert stage.states()[KEY].snapshot_epoch == 0


def test_the_state_of_a_deleted_topic_is_deleted() -> None:
    stage = new_stage()
    keys = [ShareKey("g", TOPIC, partition) for partition in range(CHANGES_AT_ONCE + 1)]
    for key in [*keys, ShareKey("g", OTHER, 0)]:
        stage.initialize(key)
    stage.step(TopicsDeleted(frozenset({TOPIC})))
    assert len(stage.states()) == 2, "a batch of them at once"
    stage.wait(100 - stage.now_ms)
    assert list(stage.states()) == [ShareKey("g", OTHER, 0)]


def test_the_log_is_pruned_up_to_the_first_snapshot_that_is_needed() -> None:
    stage = new_stage()
    first, second = ShareKey("g", TOPIC, 0), ShareKey("g", TOPIC, 1)
    stage.initialize(first)
    stage.initialize(second)
    for _ in range(3):
        stage.write(key=first)
    assert stage.shard.redundant_end_offset() == 1, "the second key has its state since its first record"
    stage.wait(1_000 - stage.now_ms)
    assert stage.commands == [PruneLog(1)]
    for _ in range(3):
        stage.write(key=second)
    assert stage.shard.redundant_end_offset() == 4, "the third update of the first key became a snapshot"
    assert stage.loaded_copy().redundant_end_offset() == 4
    stage.wait(2_000 - stage.now_ms)
    assert stage.commands == [PruneLog(1), PruneLog(4)]
    stage.step(LogPruned(4))
    stage.wait(3_000 - stage.now_ms)
    assert stage.commands == [PruneLog(1), PruneLog(4)], "nothing new is redundant"
    stage.ask(DeleteState(stage.waiter(), first))
    stage.ask(DeleteState(stage.waiter(), second))
    assert stage.shard.redundant_end_offset() == stage.end_offset - 1


def test_pruning_waits_until_the_snapshots_are_committed() -> None:
    stage = new_stage()
    stage.initialize()
    stage.is_held = True
    for _ in range(3):
        stage.write()
    stage.wait(1_000 - stage.now_ms)
    assert stage.commands == []
    stage.commit_log()
    assert stage.commands == [PruneLog(3)]


def test_a_state_that_does_not_change_gets_a_snapshot_so_that_the_log_can_be_pruned() -> None:
    stage = new_stage()
    cold, hot = ShareKey("g", TOPIC, 0), ShareKey("g", TOPIC, 1)
    stage.initialize(cold, start_offset=7)
    stage.now_ms = 4_900
    stage.initialize(hot)
    stage.wait(5_000 - stage.now_ms)
    assert stage.states()[cold] == ShareState(1, 1, 0, 7, 0, (), WALL_MS, WALL_MS + 5_000)
    assert stage.states()[hot].snapshot_epoch == 0
    assert stage.shard.redundant_end_offset() == 1
    stage.wait(10_000 - stage.now_ms)
    records = stage.end_offset
    assert all(state.write_ms != state.create_ms for state in stage.states().values())
    stage.wait(20_000 - stage.now_ms)
    assert stage.end_offset == records, "all are cold: no further snapshot helps"


def test_an_update_without_its_snapshot_is_loaded_as_the_state() -> None:
    shard = ShareStateShard(CONFIG, 0, PARTITIONS.get)
    stage = new_stage()
    stage.initialize()
    stage.write(ACCEPTED, start_offset=0, complete_count=5)
    (loaded,) = LogReader(1, ShareStateRecordReader()).read(stage.log[1].data)
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
    stage = new_stage()
    stage.initialize()
    stage.write(ACCEPTED, start_offset=0)
    stage.initialize(state_epoch=2, start_offset=0)
    stage.write(ACCEPTED, state_epoch=2, start_offset=0)
    assert stage.states()[KEY].snapshot_epoch == 1, "two updates are allowed"
    stage.write(ACCEPTED, state_epoch=2, start_offset=0)
    assert stage.states()[KEY].snapshot_epoch == 2
