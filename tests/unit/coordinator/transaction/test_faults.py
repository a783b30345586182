"""The log refuses, or is late; another broker takes over; reports about markers are late, partial, or of others."""

from __future__ import annotations

import pytest

from moldau.coordinator.runtime.machine import Unloaded
from moldau.coordinator.transaction.events import ProducerIdAnswer, SendMarkers, TransactionConfig
from moldau.coordinator.transaction.lifecycle import COMPLETION_RETRY_MS
from moldau.coordinator.transaction.transaction import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    Transaction,
    TransactionState,
)
from moldau.protocol.errors import ErrorCode
from tests.support.machine_stage import WALL_MS
from tests.support.transaction_stage import TID, TIMEOUT_MS, A, B, TransactionStage

NONE = ErrorCode.NONE
UNAVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE
WAIT = ErrorCode.CONCURRENT_TRANSACTIONS


def ongoing(stage: TransactionStage) -> None:
    producer = stage.init()
    assert producer is not None
    stage.add(producer.producer_id, 0, A)


def prepared(stage: TransactionStage, *, commits: bool = True) -> SendMarkers:
    stage.init()
    stage.add(1_000, 0, A, B)
    stage.end(1_000, 0, commits=commits)
    command = stage.commands.pop()
    assert isinstance(command, SendMarkers)
    return command


@pytest.mark.parametrize(
    ("refusal", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, UNAVAILABLE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNAVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_refused_record_changes_nothing(refusal: ErrorCode, told: ErrorCode) -> None:
    stage = TransactionStage(refusal=refusal)
    assert stage.init() == ProducerIdAnswer(told)
    assert stage.state() == "Dead"
    stage.refusal = NONE
    ongoing(stage)
    before = stage.describe()
    stage.refusal = refusal
    assert stage.add(1_001, 0, B) is told
    assert stage.init() == ProducerIdAnswer(told)
    assert stage.end(1_001, 0, commits=True) == ProducerIdAnswer(told)
    assert (stage.describe(), stage.commands) == (before, [])
    stage.refusal = NONE
    assert stage.end(1_001, 0, commits=True) == ProducerIdAnswer(NONE, 1_001, 1)


def test_a_refused_fence_leaves_the_producer_its_epoch() -> None:
    stage = TransactionStage()
    ongoing(stage)
    stage.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    assert stage.init() == ProducerIdAnswer(UNAVAILABLE)
    stage.refusal = NONE
    assert stage.add(1_000, 0, B) is NONE


def test_no_marker_leaves_before_the_outcome_is_committed() -> None:
    stage = TransactionStage()
    ongoing(stage)
    stage.is_held = True
    assert stage.end(1_000, 0, commits=True) is None
    assert (stage.commands, stage.state()) == ([], "Ongoing")
    assert stage.end(1_000, 0, commits=True) == ProducerIdAnswer(WAIT)
    stage.release()
    assert (len(stage.commands), stage.state()) == (1, "PrepareCommit")


def test_a_late_commit_is_answered_with_a_timeout_and_counts_nevertheless() -> None:
    stage = TransactionStage()
    ongoing(stage)
    stage.is_held = True
    assert stage.end(1_000, 0, commits=True) is None
    stage.wait(TransactionConfig().commit_timeout_ms)
    assert stage.last_reply == ProducerIdAnswer(UNAVAILABLE)
    assert stage.end(1_000, 0, commits=False) == ProducerIdAnswer(WAIT), "the record may yet be committed"
    stage.release()
    assert [command.is_commit for command in stage.commands] == [True]
    stage.write_markers()
    assert stage.end(1_000, 0, commits=True) == ProducerIdAnswer(NONE, 1_000, 1)


def test_a_producer_whose_start_is_late_starts_again() -> None:
    stage = TransactionStage(is_held=True)
    assert stage.init() is None
    stage.wait(TransactionConfig().commit_timeout_ms)
    assert stage.last_reply == ProducerIdAnswer(UNAVAILABLE)
    assert stage.init() == ProducerIdAnswer(WAIT)
    stage.release()
    assert stage.init() == ProducerIdAnswer(NONE, 1_000, 1)


def test_clients_of_a_lost_partition_find_the_new_coordinator() -> None:
    stage = TransactionStage()
    ongoing(stage)
    stage.is_held = True
    stage.end(1_000, 0, commits=True)
    stage.init(tid="other")
    effects = stage.shard.step(Unloaded(), stage.now_ms, stage.wall_ms)
    told = [reply.response for reply in effects.replies]
    assert told == [ProducerIdAnswer(ErrorCode.NOT_COORDINATOR)] * 2
    assert (effects.commands, effects.records) == ([], [])


# Markers


def test_each_partition_counts_once() -> None:
    stage = TransactionStage()
    command = prepared(stage)
    for partition in (A, A, A):
        stage.written(command, partition)
    assert stage.state() == "PrepareCommit"
    stage.written(command, ("other", 0), B)
    assert stage.state() == "CompleteCommit"


def test_late_reports_change_nothing() -> None:
    stage = TransactionStage()
    command = prepared(stage)
    stage.written(command)
    stored = len(stage.log)
    stage.written(command)
    assert len(stage.log) == stored
    stage.add(1_000, 1, A, B)
    stage.end(1_000, 1, commits=False)
    stage.written(command)
    assert stage.state() == "PrepareAbort"


@pytest.mark.parametrize(
    "other",
    [{"producer_id": 7}, {"producer_epoch": 0}, {"coordinator_epoch": 1}, {"transactional_id": "other"}, {"number": 7}],
    ids=str,
)
def test_reports_about_another_command_do_not_count(other: dict[str, object]) -> None:
    stage = TransactionStage()
    command = prepared(stage)
    stage.written(command._replace(**other))  # type: ignore[arg-type]
    assert stage.state() == "PrepareCommit"
    stage.written(command)
    assert stage.state() == "CompleteCommit"


def test_a_report_of_protocol_1_does_not_count_for_the_next_transaction() -> None:
    """Both have the same epoch."""
    stage = TransactionStage(transaction_version=1)
    stage.init()
    for _ in range(2):
        stage.add(1_000, 0, A, protocol=1)
        stage.end(1_000, 0, commits=True, protocol=1)
        stage.written(stage.commands[0])
    assert stage.state() == "PrepareCommit"


def test_a_completion_that_the_log_refuses_is_stored_later() -> None:
    stage = TransactionStage()
    command = prepared(stage)
    stage.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    stage.written(command)
    stage.wait(3 * COMPLETION_RETRY_MS)
    assert stage.state() == "PrepareCommit"
    stage.refusal = NONE
    stage.wait(COMPLETION_RETRY_MS)
    assert stage.state() == "CompleteCommit"


def test_a_completion_without_markers_that_the_log_refuses_is_stored_later() -> None:
    """The abort of nothing goes from prepared to complete in one step of the commit."""
    stage = TransactionStage(is_held=True)
    stage.init()
    stage.release()
    stage.is_held = True
    stage.end(1_000, 0, commits=False)
    stage.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    stage.release()
    assert stage.state() == "PrepareAbort"
    stage.refusal = NONE
    stage.wait(COMPLETION_RETRY_MS)
    assert stage.state() == "CompleteAbort"


def test_a_completion_that_is_late_is_stored_once() -> None:
    stage = TransactionStage()
    command = prepared(stage)
    stage.is_held = True
    stage.written(command)
    stored = len(stage.log)
    stage.wait(60_000)
    assert (len(stage.log), stage.state()) == (stored, "PrepareCommit")
    stage.release()
    assert stage.state() == "CompleteCommit"


# Failover


@pytest.mark.parametrize(
    ("state", "is_commit", "following"),
    [(PREPARE_COMMIT, True, "CompleteCommit"), (PREPARE_ABORT, False, "CompleteAbort")],
)
def test_a_new_coordinator_sends_the_markers_again(state: TransactionState, is_commit: bool, following: str) -> None:
    stage = TransactionStage()
    before = prepared(stage, commits=is_commit)
    assert stage.last.state is state
    stage.written(before, A)
    stage.take_over()
    assert stage.commands == [before._replace(coordinator_epoch=1, number=1)], (
        "of every partition: none is known to have it"
    )
    assert stage.end(1_000, 1, commits=is_commit) == ProducerIdAnswer(WAIT)
    stage.written(before, A, B)
    assert stage.state() == state.name.title().replace("_", ""), "those were sent by the former coordinator"
    stage.write_markers()
    assert stage.state() == following


def test_a_prepared_transaction_without_partitions_is_completed_after_a_failover() -> None:
    stage = TransactionStage()
    stage.load({TID: Transaction(7, 1, TIMEOUT_MS, PREPARE_ABORT, WALL_MS, start_ms=WALL_MS, client_version=2)})
    assert (stage.commands, stage.state()) == ([], "CompleteAbort")


@pytest.mark.parametrize("state", [EMPTY, ONGOING, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_other_states_are_found_as_they_were(state: TransactionState) -> None:
    stage = TransactionStage()
    partitions = frozenset({A}) if state is ONGOING else frozenset()
    stage.load({TID: Transaction(7, 3, TIMEOUT_MS, state, WALL_MS, partitions, WALL_MS)})
    assert (stage.commands, stage.describe().producer_epoch) == ([], 3)
    assert stage.add(7, 3, A) is NONE


def test_what_was_not_committed_may_be_gone() -> None:
    stage = TransactionStage()
    ongoing(stage)
    stage.is_held = True
    stage.end(1_000, 0, commits=True)
    stage.take_over(end_offset=stage.committed_end_offset)
    assert (stage.state(), stage.commands) == ("Ongoing", [])
    stage.is_held = False
    assert stage.end(1_000, 0, commits=False) == ProducerIdAnswer(NONE, 1_000, 1)


def test_what_was_not_committed_may_have_been_replicated() -> None:
    stage = TransactionStage()
    ongoing(stage)
    stage.is_held = True
    stage.end(1_000, 0, commits=True)
    stage.is_held = False
    stage.take_over(end_offset=stage.end_offset)
    assert (stage.state(), [command.is_commit for command in stage.commands]) == ("PrepareCommit", [True])
    stage.write_markers()
    assert stage.end(1_000, 0, commits=True) == ProducerIdAnswer(NONE, 1_000, 1), "the client repeats its EndTxn"


def test_an_expired_id_stays_away_after_a_failover() -> None:
    stage = TransactionStage()
    stage.init()
    stage.load({TID: None})
    assert stage.state() == "Dead"
