"""What the coordinator ends by itself: transactions that have timed out, transactional ids that no producer uses."""

from __future__ import annotations

from moldau.coordinator.transaction.events import ProducerIdAnswer, SendMarkers, TransactionConfig
from moldau.coordinator.transaction.lifecycle import ABORTS_MAX, EXAMINED_MAX
from moldau.coordinator.transaction.records import TransactionChange
from moldau.coordinator.transaction.transaction import EMPTY, ONGOING, Transaction
from moldau.protocol.errors import ErrorCode
from tests.support.machine_stage import WALL_MS
from tests.support.transaction_stage import TID, TIMEOUT_MS, A, TransactionStage

NONE = ErrorCode.NONE
CONFIG = TransactionConfig(id_expiration_ms=100_000, id_cleanup_interval_ms=30_000)


def test_a_transaction_is_aborted_after_its_timeout() -> None:
    stage = TransactionStage()
    stage.init()
    stage.wait(5)
    stage.add(1_000, 0, A)
    stage.wait(TIMEOUT_MS)
    assert stage.state() == "Ongoing", "at its deadline exactly it is not over"
    stage.wait(10_000)
    assert stage.commands == [SendMarkers(TID, 1_000, 1, 0, False, (A,), 2, 1)]
    assert any("60000 ms" in note for note in stage.notes)
    stage.write_markers()
    assert stage.state() == "CompleteAbort"


def test_under_protocol_2_the_producer_learns_that_its_transaction_is_aborted() -> None:
    """It is told no newer producer if there is none, and goes on with the epoch of the abort."""
    stage = TransactionStage()
    stage.init()
    stage.add(1_000, 0, A)
    stage.wait(TIMEOUT_MS + 10_000)
    stage.write_markers()
    assert stage.end(1_000, 0, commits=True) == ProducerIdAnswer(ErrorCode.INVALID_TXN_STATE)
    assert stage.end(1_000, 0, commits=False) == ProducerIdAnswer(NONE, 1_000, 1)


def test_under_protocol_1_the_producer_is_fenced() -> None:
    stage = TransactionStage(transaction_version=1)
    stage.init()
    stage.add(1_000, 0, A, protocol=1)
    stage.wait(TIMEOUT_MS + 10_000)
    assert stage.commands == [SendMarkers(TID, 1_000, 1, 0, False, (A,), 0, 1)]
    stage.write_markers()
    assert stage.end(1_000, 0, commits=False, protocol=1) == ProducerIdAnswer(ErrorCode.PRODUCER_FENCED)


def test_a_transaction_with_a_pending_record_is_left_for_the_next_search() -> None:
    stage = TransactionStage(config=TransactionConfig(commit_timeout_ms=1_000_000))
    stage.init()
    stage.add(1_000, 0, A)
    stage.is_held = True
    stage.end(1_000, 0, commits=True)
    stage.wait(TIMEOUT_MS + 20_000)
    stage.release()
    assert stage.state() == "PrepareCommit"


def test_an_abort_that_the_log_refuses_is_tried_again() -> None:
    stage = TransactionStage()
    stage.init()
    stage.add(1_000, 0, A)
    stage.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    stage.wait(TIMEOUT_MS + 20_000)
    assert stage.state() == "Ongoing"
    stage.refusal = NONE
    stage.wait(10_000)
    assert stage.state() == "PrepareAbort"
    assert stage.last.producer_epoch == 1


def test_a_transaction_times_out_after_a_failover() -> None:
    stage = TransactionStage()
    stage.init()
    stage.add(1_000, 0, A)
    stage.wait(TIMEOUT_MS - 1_000)
    stage.take_over()
    stage.wait(11_001)
    assert stage.state() == "PrepareAbort"


def test_many_time_out_in_batches() -> None:
    stage = TransactionStage()
    ongoing = Transaction(7, 0, TIMEOUT_MS, ONGOING, WALL_MS, frozenset({A}), WALL_MS)
    stage.load({f"t{number}": ongoing for number in range(2 * ABORTS_MAX + 1)})
    stage.wait(70_000)
    assert stage.shard.counts_by_state() == {"Ongoing": ABORTS_MAX + 1, "PrepareAbort": ABORTS_MAX}
    stage.wait(200)
    assert stage.shard.counts_by_state() == {"PrepareAbort": 2 * ABORTS_MAX + 1}


def test_an_unused_transactional_id_expires() -> None:
    stage = TransactionStage(config=CONFIG)
    stage.init()
    stage.init(tid="other")
    stage.wait(60_000)
    stage.init(tid="other")
    stage.wait(30_000)
    assert stage.state() == "Empty"
    stage.wait(30_000)
    assert (stage.state(), stage.state("other")) == ("Dead", "Empty")
    assert stage.log[-1].changes == [TransactionChange(TID, None)]
    assert stage.end(1_000, 0, commits=False) == ProducerIdAnswer(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    assert stage.init(1_000, 0) == ProducerIdAnswer(NONE, 1_002, 0), "the client goes on with another producer id"


def test_an_open_transaction_does_not_expire() -> None:
    stage = TransactionStage(config=CONFIG)
    stage.init(timeout_ms=900_000)
    stage.add(1_000, 0, A)
    stage.wait(500_000)
    assert stage.state() == "Ongoing"
    stage.end(1_000, 0, commits=True)
    stage.wait(500_000)
    assert stage.state() == "PrepareCommit"
    stage.write_markers()
    stage.wait(150_000)
    assert stage.state() == "Dead"


def test_while_its_tombstone_is_pending_an_id_waits() -> None:
    stage = TransactionStage(config=CONFIG)
    stage.init()
    stage.is_held = True
    stage.wait(120_000)
    assert stage.state() == "Empty"
    assert stage.init() == ProducerIdAnswer(ErrorCode.CONCURRENT_TRANSACTIONS)
    stage.release()
    assert stage.init() == ProducerIdAnswer(NONE, 1_001, 0)


def test_tombstones_that_the_log_refuses_are_tried_again() -> None:
    stage = TransactionStage(config=CONFIG)
    stage.init()
    stage.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    stage.wait(120_000)
    assert stage.state() == "Empty"
    stage.refusal = NONE
    stage.wait(30_000)
    assert stage.state() == "Dead"


def test_a_search_examines_some_ids_at_a_time() -> None:
    stage = TransactionStage(config=CONFIG)
    empty = Transaction(7, 0, TIMEOUT_MS, EMPTY, WALL_MS)
    stage.load({f"t{number}": empty for number in range(2 * EXAMINED_MAX + 1)})
    stage.wait(120_599)
    assert stage.shard.counts_by_state() == {"Empty": 2 * EXAMINED_MAX + 1}
    stage.wait(1)
    assert stage.shard.counts_by_state() == {"Empty": EXAMINED_MAX + 1}
    stage.wait(200)
    assert stage.shard.counts_by_state() == {}
