"""The purgatory: what an operation watches, when it looks, and how each wait ends without a trace."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast

import pytest

from moldau.broker.purgatory.purgatory import (
    HIGH_WATERMARK,
    LAST_STABLE_OFFSET,
    LOG_END_OFFSET,
    LOW_WATERMARK,
    AppendedRecords,
    CommitCallback,
    DelayedOperation,
    DelayedProduce,
    Purgatory,
    Watch,
)
from moldau.broker.runtime.pending import Pending
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from moldau.protocol.record_builder import Record, build_batch
from moldau.replication.follower_fetch import UpdatedPartitions
from moldau.replication.partition import Partition
from moldau.replication.verification import guard_for_client_batch
from tests.support.node import batch
from tests.support.partitions import partition
from tests.support.purgatories import ManualLoop, purgatory_of, watch_count

WAIT_MS = 500


class Stage:
    """A purgatory, and two partitions that this broker leads."""

    def __init__(self) -> None:
        self.loop = ManualLoop()
        self.purgatory = purgatory_of(self.loop)
        self.partitions = [partition(index=i) for i in range(2)]
        for each in self.partitions:
            each.become_leader(1, 5, (1,))

    def operation(self, what: Watch = HIGH_WATERMARK) -> Waiting:
        waiting = Waiting(self.purgatory)
        waiting.operation.watch(self.partitions, what)
        return waiting


class Waiting:
    """An operation, its looks, and what it was answered."""

    def __init__(self, purgatory: Purgatory, then: Callable[[], None] = lambda: None) -> None:
        self.looks: list[bool] = []
        self.answer: str | Pending[str] | None = None
        self.replies: list[str] = []
        self._then = then
        self.operation: DelayedOperation[str] = DelayedOperation(purgatory, "Fetch", WAIT_MS, self.attempt)
        self.operation.reply.listen(self.replies.append)

    def attempt(self, is_last: bool) -> str | Pending[str] | None:
        self.looks.append(is_last)
        self._then()
        return "last" if is_last and self.answer is None else self.answer


def commit(under_test: Partition) -> None:
    assert under_test.append(batch("x"), -1, 0, 9).error is ErrorCode.NONE


def is_empty(purgatory: Purgatory) -> bool:
    timed = any(queue.waiting for queue in purgatory.timeouts._queues.values())
    return not timed and watch_count(purgatory) == 0 == sum(purgatory.sizes.values())


@pytest.mark.parametrize(
    ("what", "looks"),
    [
        (LOG_END_OFFSET, [1, 1, 2, 3]),
        (HIGH_WATERMARK, [1, 1, 2, 3]),
        (LAST_STABLE_OFFSET, [1, 1, 2, 3]),
        (LOW_WATERMARK, [0, 1, 2, 3]),
    ],
)
def test_an_operation_looks_when_what_it_watches_moves_and_when_the_role_ends(what: Watch, looks: list[int]) -> None:
    stage = Stage()
    waiting = stage.operation(what)
    first = stage.partitions[0]
    moves: list[Callable[[], object]] = [
        lambda: commit(first),
        lambda: first.delete_records_before(1),
        lambda: first.become_follower(2, 6),
        lambda: first.notify_removed(),
    ]
    for index, move in enumerate(moves):
        move()
        stage.loop.run()
        assert waiting.looks == [False] * looks[index], f"after move {index}"


def test_a_reader_at_the_last_stable_offset_looks_when_a_marker_is_committed_and_not_before() -> None:
    stage = Stage()
    first = stage.partitions[0]
    first.become_leader(1, 6, (1, 2), replicas=(1, 2), partition_epoch=1)

    def send(producer_id: int) -> None:
        sent = build_batch(
            [Record(b"k", b"v", 1)], producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
        )
        first.append(sent, -1, 0, 12, guard_for_client_batch(first, sent, 0, 12))

    def end(producer_id: int) -> None:
        first.end_transaction(producer_id, 1, 0, is_commit=True, coordinator_epoch=0, transaction_version=2)

    def replicate() -> None:
        first.note_follower_fetch(2, first.log.end_offset, 0, 9, now_ms=0)
        first.advance_high_watermark()
        stage.loop.run()

    send(7)
    send(8)
    commit(first)
    replicate()
    waiting = stage.operation(LAST_STABLE_OFFSET)
    commit(first)
    replicate()
    assert waiting.looks == [], "behind the open transactions more is committed, which it may not read"
    end(8)
    replicate()
    assert waiting.looks == [], "the transaction before that one is open still"
    end(7)
    stage.loop.run()
    assert waiting.looks == [], "the marker is not committed"
    replicate()
    assert waiting.looks == [False]
    commit(first)
    replicate()
    assert waiting.looks == [False, False], "no transaction holds anything back"


def test_a_reader_looks_when_the_start_of_the_first_open_transaction_is_deleted() -> None:
    stage = Stage()
    first = stage.partitions[0]
    for sequence in range(2):
        sent = build_batch(
            [Record(b"k", b"v", 1)], producer_id=7, producer_epoch=0, base_sequence=sequence, is_transactional=True
        )
        first.append(sent, -1, 0, 12, guard_for_client_batch(first, sent, 0, 12))
    waiting = stage.operation(LAST_STABLE_OFFSET)
    first.delete_records_before(1)
    stage.loop.run()
    assert waiting.looks == [False] and first.last_stable_offset == 1


def test_many_moves_in_one_callback_are_one_look() -> None:
    stage = Stage()
    waiting = stage.operation()
    for each in stage.partitions * 3:
        commit(each)
    assert not waiting.looks
    stage.loop.run()
    assert waiting.looks == [False] and not waiting.replies


def test_while_actions_are_held_none_looks_and_then_each_once() -> None:
    stage = Stage()
    one, two = stage.operation(), stage.operation()
    stage.purgatory.hold_actions()
    for each in stage.partitions:
        commit(each)
    assert not one.looks and not two.looks
    stage.purgatory.try_complete_actions()
    assert one.looks == two.looks == [False] and not stage.loop.ready


def test_an_operation_that_another_one_moves_looks_in_the_next_iteration() -> None:
    stage = Stage()
    moving = Waiting(stage.purgatory, lambda: commit(stage.partitions[1]))
    moving.operation.watch(stage.partitions[:1], HIGH_WATERMARK)
    moved = Waiting(stage.purgatory)
    moved.operation.watch(stage.partitions[1:], HIGH_WATERMARK)
    stage.purgatory.hold_actions()
    commit(stage.partitions[0])
    stage.purgatory.try_complete_actions()
    assert moving.looks == [False] and not moved.looks
    stage.loop.iterate()
    assert moved.looks == [False]


def test_a_look_that_was_scheduled_and_has_been_taken_is_not_taken_again() -> None:
    stage = Stage()
    waiting = stage.operation()
    commit(stage.partitions[0])
    stage.purgatory.hold_actions()
    stage.purgatory.try_complete_actions()
    stage.loop.run()
    assert waiting.looks == [False]


def test_a_look_that_fails_takes_no_other_with_it() -> None:
    stage = Stage()

    def fail() -> None:
        raise ZeroDivisionError("a bug")

    failing = Waiting(stage.purgatory, fail)
    failing.operation.watch(stage.partitions, HIGH_WATERMARK)
    other = stage.operation()
    stage.purgatory.hold_actions()
    commit(stage.partitions[0])
    with pytest.raises(ZeroDivisionError):
        stage.purgatory.try_complete_actions()
    assert failing.looks == [False] and not other.looks
    stage.loop.run()
    assert other.looks == [False]


def test_an_answer_ends_the_watching_everywhere() -> None:
    stage = Stage()
    waiting = stage.operation()
    assert stage.purgatory.sizes == {"Fetch": 1} and watch_count(stage.purgatory) == 2
    waiting.answer = "enough"
    commit(stage.partitions[1])
    stage.loop.run()
    assert waiting.replies == ["enough"] and is_empty(stage.purgatory)


def test_the_last_look_is_when_the_time_is_up() -> None:
    stage = Stage()
    waiting = stage.operation()
    stage.loop.pass_time(WAIT_MS / 1000)
    commit(stage.partitions[0])
    stage.loop.run()
    assert waiting.looks == [True] and waiting.replies == ["last"] and is_empty(stage.purgatory)


def test_an_operation_can_be_told_to_wait_less() -> None:
    stage = Stage()
    waiting = stage.operation()
    waiting.operation.limit_wait(10)
    stage.loop.pass_time(0.01)
    assert waiting.looks == [True] and waiting.replies == ["last"] and is_empty(stage.purgatory)


def test_an_answer_that_is_still_being_read_is_passed_on_when_it_is_there() -> None:
    stage = Stage()
    waiting = stage.operation()
    cold: Pending[str] = Pending()
    waiting.answer = cold
    stage.loop.pass_time(WAIT_MS / 1000)
    assert not waiting.replies and is_empty(stage.purgatory)
    cold.complete("read")
    assert waiting.replies == ["read"]


def test_an_operation_whose_connection_was_lost_leaves_nothing_behind() -> None:
    stage = Stage()
    waiting = stage.operation()
    commit(stage.partitions[0])
    waiting.operation.reply.abandon()
    assert is_empty(stage.purgatory)
    stage.loop.pass_time(WAIT_MS / 1000)
    assert not waiting.looks and not waiting.replies


def test_an_operation_may_be_completed_from_outside_once() -> None:
    stage = Stage()
    waiting = stage.operation()
    waiting.operation.complete("done")
    waiting.operation.complete("again")
    assert waiting.replies == ["done"] and is_empty(stage.purgatory)


def test_ten_thousand_may_wait_and_leave() -> None:
    stage = Stage()
    waiting = [stage.operation() for _ in range(10_000)]
    for each in waiting:
        each.operation.reply.abandon()
    assert is_empty(stage.purgatory)


def test_a_fetch_of_a_followers_session_looks_at_urgent_updates_until_it_ends() -> None:
    stage, updates = Stage(), UpdatedPartitions()
    waiting = Waiting(stage.purgatory)
    waiting.operation.watch_updates(updates)
    updates.note_change(("t", 0))
    stage.loop.run()
    assert not waiting.looks
    updates.note_urgent_change(("t", 0))
    updates.note_urgent_change(("t", 1))
    stage.loop.run()
    assert waiting.looks == [False]
    later = Waiting(stage.purgatory)
    later.operation.watch_updates(updates)
    waiting.operation.reply.abandon()
    updates.note_urgent_change(("t", 0))
    stage.loop.run()
    assert later.looks == [False], "the end of an earlier fetch leaves the later one alone"


def test_a_partition_that_is_gone_is_forgotten() -> None:
    stage = Stage()
    stage.operation()
    stage.partitions[0].notify_removed()
    assert list(stage.purgatory._watchers) == stage.partitions[1:]


# Commits


class Replicated:
    """A partition of two replicas, whose commits wait for a follower."""

    def __init__(self) -> None:
        self.purgatory = purgatory_of(ManualLoop())
        self.partition = partition()
        self.partition.become_leader(1, 5, (1, 2), partition_epoch=1)
        self.heard: list[tuple[int, ErrorCode]] = []

    def append(self) -> int:
        commit(self.partition)
        return self.partition.log.end_offset

    def wait(self, end_offset: int) -> None:
        self.purgatory.await_commit(self.partition, CommitCallback(end_offset, partial(self._note, end_offset)))

    def _note(self, end_offset: int, error: ErrorCode) -> None:
        self.heard.append((end_offset, error))

    def fetched(self, offset: int) -> None:
        self.partition.note_follower_fetch(2, offset, 0, 1, 0)
        self.partition.advance_high_watermark()


def test_all_before_the_high_watermark_are_told_at_once_in_the_order_of_the_log() -> None:
    replicated = Replicated()
    for _ in range(3):
        replicated.wait(replicated.append())
    replicated.wait(3)
    replicated.fetched(2)
    assert replicated.heard == [(1, ErrorCode.NONE), (2, ErrorCode.NONE)]
    replicated.fetched(3)
    assert replicated.heard[2:] == [(3, ErrorCode.NONE)] * 2
    replicated.wait(2)
    assert replicated.heard[4:] == [(2, ErrorCode.NONE)], "it is committed already"


@pytest.mark.parametrize("is_gone", [True, False])
def test_the_end_of_leadership_is_told_to_each_wait_once(is_gone: bool) -> None:
    replicated = Replicated()
    replicated.wait(replicated.append())
    if is_gone:
        replicated.partition.notify_removed(ErrorCode.KAFKA_STORAGE_ERROR)
    replicated.partition.become_follower(2, 6)
    replicated.partition.notify_removed()
    error = ErrorCode.KAFKA_STORAGE_ERROR if is_gone else ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert replicated.heard == [(1, error)]
    replicated.wait(1)
    assert replicated.heard[1:] == [(1, ErrorCode.NOT_LEADER_OR_FOLLOWER)], "a replica that leads no more never knows"


def test_a_wait_that_begins_late_stands_in_the_order_of_the_log() -> None:
    """A produce that held a large batch as well waits only once an executor thread has examined that one."""
    replicated = Replicated()
    for _ in range(4):
        replicated.append()
    for end_offset in (2, 4, 1, 3):
        replicated.wait(end_offset)
    for end_offset in (1, 3, 4):
        replicated.fetched(end_offset)
    assert [end_offset for end_offset, _ in replicated.heard] == [1, 2, 3, 4]


def test_a_wait_that_was_cancelled_is_not_settled() -> None:
    replicated = Replicated()
    cancelled: list[ErrorCode] = []
    wait = CommitCallback(replicated.append(), cancelled.append)
    replicated.purgatory.await_commit(replicated.partition, wait)
    replicated.wait(replicated.append())
    wait.cancel()
    wait.cancel()
    replicated.fetched(2)
    assert replicated.heard == [(2, ErrorCode.NONE)] and not cancelled


# Produce


class Produced(Replicated):
    """An acks=all request that appended to the partition, and waits."""

    def __init__(self, *, has_failed: bool = False) -> None:
        super().__init__()
        self.answers = [PartitionProduceResponse(index=0, base_offset=offset) for offset in range(2)]
        self.leaders_named = 0
        self.replies: list[ProduceResponse] = []
        appended = [AppendedRecords(self.partition, self.append(), answer) for answer in self.answers]
        self.loop = self.purgatory._loop
        self.operation = DelayedProduce(
            self.purgatory, WAIT_MS, ProduceResponse(), appended, self._name_leaders, has_failed=has_failed
        )
        self.operation.reply.listen(self.replies.append)

    def _name_leaders(self) -> None:
        self.leaders_named += 1

    @property
    def errors(self) -> list[tuple[int, int]]:
        return [(each.error_code, each.base_offset) for each in self.answers]


def test_a_produce_is_answered_when_all_of_it_is_committed() -> None:
    produced = Produced()
    produced.fetched(1)
    assert not produced.replies
    produced.fetched(2)
    assert len(produced.replies) == 1 and produced.errors == [(0, 0), (0, 1)] and not produced.leaders_named
    assert is_empty(produced.purgatory)


def test_a_settled_partition_costs_the_same_however_many_wait() -> None:
    """The list of the records is not made anew for each of them."""
    produced = Produced()
    waiting = produced.operation._open
    produced.fetched(1)
    assert produced.operation._open is waiting and not produced.replies


def test_a_produce_names_the_leader_when_this_replica_leads_no_more() -> None:
    produced = Produced()
    produced.fetched(1)
    produced.partition.become_follower(2, 6)
    assert produced.errors == [(0, 0), (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)] and produced.leaders_named == 1
    assert len(produced.replies) == 1 and is_empty(produced.purgatory)


def test_what_is_not_committed_in_time_is_refused_and_waits_no_more() -> None:
    produced = Produced(has_failed=True)
    produced.fetched(1)
    cast("ManualLoop", produced.loop).pass_time(WAIT_MS / 1000)
    assert produced.errors == [(0, 0), (ErrorCode.REQUEST_TIMED_OUT, -1)] and produced.leaders_named == 1
    assert len(produced.replies) == 1 and is_empty(produced.purgatory)
    produced.fetched(2)
    assert produced.errors[1] == (ErrorCode.REQUEST_TIMED_OUT, -1)


def test_a_produce_whose_connection_was_lost_waits_for_no_commit() -> None:
    produced = Produced()
    produced.wait(2)
    produced.operation.reply.abandon()
    produced.fetched(2)
    assert not produced.replies and produced.heard == [(2, ErrorCode.NONE)] and is_empty(produced.purgatory)
