"""Whole transactions: of both protocols, fenced, repeated, delayed, timed out, with epochs used up."""

from __future__ import annotations

import pytest

from moldau.coordinator.transaction.events import ProducerIdAnswer, SendMarkers, TransactionConfig
from moldau.coordinator.transaction.transaction import EMPTY, EPOCH_MAX, LAST_EPOCH, ONGOING, Transaction
from moldau.protocol.errors import ErrorCode
from tests.support.machine_stage import WALL_MS
from tests.support.transaction_stage import TID, TIMEOUT_MS, A, B, TransactionStage

NONE = ErrorCode.NONE
FENCED = ProducerIdAnswer(ErrorCode.PRODUCER_FENCED)
WAIT = ProducerIdAnswer(ErrorCode.CONCURRENT_TRANSACTIONS)
DONE_1 = ProducerIdAnswer(NONE)
"""The answer to an EndTxn of protocol 1."""


def with_producer(stage: TransactionStage, epoch: int) -> None:
    """A producer with this epoch of the producer id 7."""
    stage.load({TID: Transaction(7, epoch, TIMEOUT_MS, EMPTY, stage.wall_ms)})


def test_a_transaction_of_protocol_2() -> None:
    stage = TransactionStage()
    assert stage.init() == ProducerIdAnswer(NONE, 1_000, 0)
    assert stage.state() == "Empty"
    assert stage.add(1_000, 0, A) is NONE
    assert stage.add(1_000, 0, B) is NONE
    assert stage.end(1_000, 0, commits=True) == ProducerIdAnswer(NONE, 1_000, 1)
    assert stage.state() == "PrepareCommit"
    assert stage.commands == [SendMarkers(TID, 1_000, 1, 0, True, (A, B), 2, 1)]
    assert stage.add(1_000, 1, A) is ErrorCode.CONCURRENT_TRANSACTIONS
    stage.written(stage.commands[0], B)
    assert stage.state() == "PrepareCommit"
    stage.written(stage.commands[0], A)
    assert stage.state() == "CompleteCommit"
    assert stage.add(1_000, 1, A) is NONE


def test_a_transaction_of_protocol_1_keeps_the_epoch() -> None:
    stage = TransactionStage(transaction_version=1)
    stage.init()
    stage.add(1_000, 0, A, protocol=1)
    assert stage.end(1_000, 0, commits=False, protocol=1) == DONE_1
    assert stage.commands == [SendMarkers(TID, 1_000, 0, 0, False, (A,), 0, 1)]
    stage.write_markers()
    assert stage.state() == "CompleteAbort"
    assert stage.end(1_000, 0, commits=False, protocol=1) == DONE_1
    assert stage.add(1_000, 0, A, protocol=1) is NONE


def test_partitions_that_are_there_are_not_stored_again() -> None:
    stage = TransactionStage()
    stage.init()
    stage.add(1_000, 0, A, B)
    stored = len(stage.log)
    assert stage.add(1_000, 0, B) is NONE
    assert len(stage.log) == stored


def test_the_start_of_a_transaction_is_when_its_first_partition_came() -> None:
    stage = TransactionStage()
    stage.init()
    stage.wait(5)
    stage.add(1_000, 0, A)
    stage.wait(5)
    stage.add(1_000, 0, B)
    assert (stage.last.start_ms, stage.last.updated_ms) == (WALL_MS + 5, WALL_MS + 10)
    stage.end(1_000, 0, commits=True)
    stage.write_markers()
    assert stage.last.start_ms == WALL_MS + 5
    stage.wait(5)
    stage.add(1_000, 1, A)
    assert stage.last.start_ms == WALL_MS + 15


def test_an_abort_without_partitions_needs_no_marker() -> None:
    stage = TransactionStage()
    stage.init()
    assert stage.end(1_000, 0, commits=False) == ProducerIdAnswer(NONE, 1_000, 1)
    assert stage.commands == []
    assert (stage.state(), stage.last.start_ms) == ("CompleteAbort", WALL_MS)
    assert stage.end(1_000, 0, commits=False) == ProducerIdAnswer(NONE, 1_000, 1), "it is repeated"
    assert stage.end(1_000, 1, commits=False) == ProducerIdAnswer(NONE, 1_000, 2), "the next is aborted"


def test_a_new_producer_fences_the_one_before() -> None:
    stage = TransactionStage()
    stage.init()
    stage.add(1_000, 0, A)
    assert stage.init() == WAIT
    assert stage.commands == [SendMarkers(TID, 1_000, 1, 0, False, (A,), 2, 1)]
    assert stage.init() == WAIT, "until the marker is written"
    stage.write_markers()
    assert stage.init() == ProducerIdAnswer(NONE, 1_000, 2)
    assert stage.end(1_000, 0, commits=True) == FENCED
    assert stage.add(1_000, 0, A) is ErrorCode.PRODUCER_FENCED


def test_under_protocol_1_a_fence_takes_the_epoch_away_from_both() -> None:
    stage = TransactionStage(transaction_version=0)
    stage.init()
    stage.add(1_000, 0, A, protocol=1)
    assert stage.init() == WAIT
    stage.write_markers()
    assert stage.describe().producer_epoch == 1
    assert stage.init(1_000, 0) == FENCED, "no producer was told the epoch above"
    assert stage.init() == ProducerIdAnswer(NONE, 1_000, 2)


def test_a_producer_goes_on_after_an_error_and_may_ask_again() -> None:
    """KIP-360."""
    stage = TransactionStage()
    stage.init()
    assert stage.init(1_000, 0) == ProducerIdAnswer(NONE, 1_000, 1)
    assert stage.init(1_000, 0) == ProducerIdAnswer(NONE, 1_000, 1), "the answer was lost"
    assert stage.init() == ProducerIdAnswer(NONE, 1_000, 2)
    assert stage.init(1_000, 1) == FENCED, "another producer has started"


def test_a_new_coordinator_does_not_know_the_epoch_before() -> None:
    """As with Apache Kafka: no record has it."""
    stage = TransactionStage()
    stage.init()
    stage.init(1_000, 0)
    stage.take_over()
    assert stage.init(1_000, 0) == FENCED
    assert stage.init(1_000, 1) == ProducerIdAnswer(NONE, 1_000, 2)


def test_a_delayed_end_does_not_end_the_next_transaction() -> None:
    """KAFKA-17754: the client gave up a connection with its EndTxn on it, and sent another."""
    stage = TransactionStage()
    stage.init()
    stage.add(1_000, 0, A)
    stage.end(1_000, 0, commits=True)
    stage.write_markers()
    assert stage.end(1_000, 0, commits=True) == ProducerIdAnswer(NONE, 1_000, 1)
    stage.add(1_000, 1, B)
    assert stage.end(1_000, 0, commits=True) == FENCED
    assert stage.end(1_000, 0, commits=False) == FENCED
    assert stage.state() == "Ongoing"
    stage.end(1_000, 1, commits=False)
    stage.write_markers()
    assert stage.end(1_000, 0, commits=True) == FENCED, "it is too old to be a repetition"


def test_a_repeated_end_of_the_other_kind_is_refused() -> None:
    stage = TransactionStage()
    stage.init()
    stage.add(1_000, 0, A)
    stage.end(1_000, 0, commits=True)
    stage.write_markers()
    assert stage.end(1_000, 0, commits=False) == ProducerIdAnswer(ErrorCode.INVALID_TXN_STATE)


def test_a_fenced_producer_of_protocol_2_is_not_told_the_end_of_another_of_protocol_1() -> None:
    """The end of protocol 1 does not move the epoch: the one below is that of the producer before."""
    stage = TransactionStage()
    stage.init()
    stage.init()
    stage.add(1_000, 1, A, protocol=1)
    stage.end(1_000, 1, commits=True, protocol=1)
    stage.write_markers()
    assert stage.end(1_000, 0, commits=True) == FENCED


def test_the_last_epoch_of_a_producer_is_ended_with_a_new_id() -> None:
    stage = TransactionStage()
    with_producer(stage, LAST_EPOCH)
    stage.add(7, LAST_EPOCH, A)
    assert stage.end(7, LAST_EPOCH, commits=True) == ProducerIdAnswer(NONE, 1_000, 0)
    assert stage.commands[0][1:3] == (7, EPOCH_MAX)
    assert (stage.last.next_producer_id, stage.describe().producer_id) == (1_000, 7)
    stage.write_markers()
    assert (stage.describe().producer_id, stage.describe().producer_epoch) == (1_000, 0)
    assert stage.end(7, LAST_EPOCH, commits=True) == ProducerIdAnswer(NONE, 1_000, 0), "it is repeated"
    assert stage.init(7, LAST_EPOCH) == ProducerIdAnswer(NONE, 1_000, 0), "and so is this, of the same producer"
    assert stage.add(1_000, 0, A) is NONE


def test_the_new_id_of_an_end_survives_a_failover() -> None:
    stage = TransactionStage()
    with_producer(stage, LAST_EPOCH)
    stage.add(7, LAST_EPOCH, A)
    stage.end(7, LAST_EPOCH, commits=True)
    stage.commands.clear()
    stage.take_over()
    stage.write_markers()
    assert stage.end(7, LAST_EPOCH, commits=True) == ProducerIdAnswer(NONE, 1_000, 0)


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_producer_starts_with_a_new_id_for_want_of_epochs(goes_on: bool) -> None:
    stage = TransactionStage()
    with_producer(stage, LAST_EPOCH)
    claim = (7, LAST_EPOCH) if goes_on else (-1, -1)
    assert stage.init(*claim) == ProducerIdAnswer(NONE, 1_000, 0)
    assert stage.init(7, LAST_EPOCH) == (ProducerIdAnswer(NONE, 1_000, 0) if goes_on else FENCED)


def test_a_producer_of_the_last_epoch_may_ask_again() -> None:
    stage = TransactionStage()
    with_producer(stage, LAST_EPOCH - 1)
    assert stage.init(7, LAST_EPOCH - 1) == ProducerIdAnswer(NONE, 7, LAST_EPOCH)
    assert stage.init(7, LAST_EPOCH - 1) == ProducerIdAnswer(NONE, 7, LAST_EPOCH)


@pytest.mark.parametrize("version", [1, 2])
def test_a_producer_of_the_last_epoch_is_fenced(version: int) -> None:
    """The epoch above is no client's, save that of the fence."""
    stage = TransactionStage(transaction_version=version)
    with_producer(stage, LAST_EPOCH)
    stage.add(7, LAST_EPOCH, A)
    assert stage.init() == WAIT
    assert stage.commands[0].producer_epoch == EPOCH_MAX
    stage.write_markers()
    assert stage.init() == ProducerIdAnswer(NONE, 1_000, 1 if version == 2 else 0)


def test_the_highest_epoch_is_never_passed() -> None:
    """Apache Kafka has logs with such an epoch: of a fence that was stored and then fenced again."""
    stage = TransactionStage()
    stage.load({TID: Transaction(7, EPOCH_MAX, TIMEOUT_MS, ONGOING, WALL_MS, frozenset({A}), WALL_MS)})
    assert stage.init() == WAIT
    assert stage.commands[0].producer_epoch == EPOCH_MAX
    assert stage.commands[0].transaction_version == 0, "partitions take a marker of the same epoch"
    stage.write_markers()
    assert stage.init() == ProducerIdAnswer(NONE, 1_000, 0)


def test_the_highest_epoch_is_given_to_no_client() -> None:
    stage = TransactionStage(transaction_version=1)
    with_producer(stage, LAST_EPOCH)
    stage.add(7, LAST_EPOCH, A)
    assert stage.init() == WAIT
    stage.write_markers()
    stage.transaction_version = 2
    assert stage.end(7, LAST_EPOCH, commits=False) == FENCED


def test_without_producer_ids_the_client_tries_again() -> None:
    stage = TransactionStage(has_producer_ids=False)
    waits = ProducerIdAnswer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert stage.init() == waits
    with_producer(stage, LAST_EPOCH)
    assert stage.init() == waits
    stage.add(7, LAST_EPOCH, A)
    assert stage.end(7, LAST_EPOCH, commits=True) == waits
    assert stage.init() == waits
    assert stage.state() == "Ongoing"
    stage.wait(TIMEOUT_MS + 10_000)
    assert stage.state() == "Ongoing"
    stage.has_producer_ids = True
    stage.wait(10_000)
    assert stage.state() == "PrepareAbort"


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_timeouts_have_bounds(timeout_ms: int) -> None:
    refused = ProducerIdAnswer(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    assert TransactionStage().init(timeout_ms=timeout_ms) == refused


def test_requests_that_name_no_transactional_id() -> None:
    stage = TransactionStage()
    refused = ProducerIdAnswer(ErrorCode.INVALID_REQUEST)
    assert stage.init(tid="") == stage.init(tid="x" * 40_000) == stage.init(7, -1) == stage.init(-1, 0) == refused
    assert stage.add(7, 0, A, tid="") is ErrorCode.INVALID_REQUEST
    assert stage.verify(7, 0, A, tid="") == {A: ErrorCode.INVALID_REQUEST}
    assert stage.end(7, 0, commits=True, tid="") == refused
    assert stage.log == []


def test_the_timeout_of_a_transaction_is_the_one_of_its_producer() -> None:
    stage = TransactionStage()
    stage.init(timeout_ms=1_000)
    stage.init(timeout_ms=2_000)
    assert stage.describe().timeout_ms == 2_000


def test_a_verification_reads_the_committed_partitions() -> None:
    stage = TransactionStage()
    stage.init()
    stage.add(1_000, 0, A)
    stage.is_held = True
    stage.add(1_000, 0, B)
    assert stage.verify(1_000, 0, A, B) == {A: NONE, B: ErrorCode.TRANSACTION_ABORTABLE}
    stage.release()
    assert stage.verify(1_000, 0, A, B) == {A: NONE, B: NONE}


def test_a_smaller_maximum_does_not_touch_transactions_that_run() -> None:
    stage = TransactionStage()
    stage.init()
    stage.shard.config = TransactionConfig(max_timeout_ms=1)
    assert stage.add(1_000, 0, A) is NONE
    assert stage.init() == ProducerIdAnswer(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
