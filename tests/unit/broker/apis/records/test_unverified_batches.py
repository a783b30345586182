"""The first batches of a transaction: the coordinator is asked once, and answers within the question or later."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from moldau.broker.apis.records.unverified_batches import (
    NEW_PROTOCOL_VERSION,
    UnverifiedBatch,
    Verification,
    unverified_batch,
)
from moldau.broker.coordinators.transaction_verifier import TransactionQuestion
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.produce import ProduceRequest
from moldau.protocol.record_builder import Record, build_batch
from tests.support.partitions import partition

NONE = ErrorCode.NONE


class Coordinator:
    """Answers each question with `error`: at once, or if that is None when the test asks it to."""

    def __init__(self, error: ErrorCode | None = None) -> None:
        self.questions: list[TransactionQuestion] = []
        self._error = error

    def ask(self, question: TransactionQuestion) -> None:
        self.questions.append(question)
        if self._error is not None:
            question.answered(question.answer_with(self._error))


def first_batch(producer_id: int = 7) -> UnverifiedBatch:
    leader = partition()
    leader.become_leader(1, 5, (1,))
    records = build_batch(
        [Record(b"k", b"v", 1)], producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    batch = unverified_batch(request(), leader, records, 0, NEW_PROTOCOL_VERSION)
    assert batch is not None
    return batch


def request() -> ProduceRequest:
    return ProduceRequest(transactional_id="id", acks=-1, timeout_ms=1_000)


def asked(coordinator: Coordinator, *batches: UnverifiedBatch) -> Verification:
    return Verification(cast("Any", coordinator), request(), NEW_PROTOCOL_VERSION, list(batches))


def test_an_answer_within_the_question_needs_no_wait() -> None:
    batch = first_batch()
    verification = asked(Coordinator(NONE), batch)
    assert verification.is_answered
    assert verification.accepted() == [batch]
    assert batch.answer.error_code == NONE


def test_a_later_answer_is_waited_for() -> None:
    async def story() -> None:
        coordinator, batch = Coordinator(), first_batch()
        verification = asked(coordinator, batch)
        assert not verification.is_answered
        waiting = asyncio.ensure_future(verification.until_answered())
        await asyncio.sleep(0)
        (question,) = coordinator.questions
        question.answered(question.answer_with(ErrorCode.PRODUCER_FENCED))
        await waiting
        assert verification.accepted() == []
        assert batch.answer.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert batch.answer.error_message is None

    asyncio.run(story())


def test_a_refusal_has_the_text_of_apache_kafka() -> None:
    unable = "Unable to verify the partition has been added to the transaction. Underlying error: "
    for error, text in (
        (ErrorCode.NOT_COORDINATOR, f"{unable}NOT_COORDINATOR"),
        (ErrorCode.INVALID_TXN_STATE, "Partition was not added to the transaction"),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, None),
    ):
        batch = first_batch()
        assert asked(Coordinator(error), batch).accepted() == []
        assert batch.answer.error_message == text


def test_a_producer_sends_again_what_the_coordinator_did_not_try() -> None:
    """Another partition of the request was unknown to the coordinator, whose metadata may be behind."""
    batch = first_batch()
    assert asked(Coordinator(ErrorCode.OPERATION_NOT_ATTEMPTED), batch).accepted() == []
    assert batch.answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS


def test_the_batches_of_a_second_producer_are_refused() -> None:
    coordinator, batch, other = Coordinator(NONE), first_batch(7), first_batch(8)
    assert asked(coordinator, batch, other).accepted() == [batch]
    assert other.answer.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert [question.producer_id for question in coordinator.questions] == [7]


def test_without_a_guard_the_coordinator_is_not_asked() -> None:
    coordinator = Coordinator(NONE)
    refused = UnverifiedBatch(partition(), b"", None, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    verification = asked(coordinator, refused)
    assert verification.is_answered and verification.accepted() == []
    assert coordinator.questions == []
