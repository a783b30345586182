"""Whole transactions: of both protocols, fenced, repeated, timed out, with epochs used up."""

from __future__ import annotations

from coordinator.transaction.events import ProducerIdAnswer, SendMarkers
from protocol.errors import ErrorCode
from tests.support.transaction_stage import TID, A, B, TransactionStage


def test_a_transaction_of_protocol_2() -> None:
    stage = TransactionStage()
    assert stage.init() == ProducerIdAnswer(ErrorCode.NONE, 1_000, 0)
    assert stage.state() == "Empty"
    assert stage.add(1_000, 0, A) is ErrorCode.NONE
    assert stage.add(1_000, 0, B) is ErrorCode.NONE
    assert stage.end(1_000, 0, commits=True) == ProducerIdAnswer(ErrorCode.NONE, 1_000, 1)
    assert stage.state() == "PrepareCommit"
    assert stage.commands == [SendMarkers(TID, 1_000, 1, 0, True, (A, B), 2)]
    assert stage.add(1_000, 1, A) is ErrorCode.CONCURRENT_TRANSACTIONS
    stage.written(stage.commands[0], B)
    assert stage.state() == "PrepareCommit"
    stage.written(stage.commands[0], A)
    assert stage.state() == "CompleteCommit"
    assert stage.add(1_000, 1, A) is ErrorCode.NONE
