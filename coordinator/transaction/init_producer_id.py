"""InitProducerId: a producer takes over a transactional id, and fences the producer that had it."""

from __future__ import annotations

from typing import Final

from moldau.coordinator.transaction.claims import init_claim_of
from moldau.coordinator.transaction.events import (
    EPOCH_BUMP_VERSION,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    InitProducerId,
    ProducerIdAnswer,
)
from moldau.coordinator.transaction.step import TransactionStep
from moldau.coordinator.transaction.table import CREATE, FENCE, GO_ON, REPEAT, TABLE, Intent, Move
from moldau.coordinator.transaction.transaction import (
    EPOCH_MAX,
    Transaction,
    bumped,
    created,
    emptied,
    fenced,
    prepared,
    rotated,
)
from moldau.protocol.errors import ErrorCode
from moldau.protocol.records.record_frames import is_storable

NO_IDS: Final = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
"""The error while the broker has no block of producer ids. The client tries again later."""


def init_producer_id(step: TransactionStep, event: InitProducerId) -> None:
    refusal = refusal_of(step, event)
    if refusal is not ErrorCode.NONE:
        step.reply(event.waiter, ProducerIdAnswer(refusal))
        return
    before = step.transactions.committed.get(event.transactional_id)
    claim = init_claim_of(before, event.producer_id, event.producer_epoch)
    decision = TABLE[Intent.INIT][step.transactions.standing(event.transactional_id)][claim]
    if isinstance(decision, ErrorCode):
        step.reply(event.waiter, ProducerIdAnswer(decision))
    elif decision is CREATE or before is None:
        create(step, event)
    elif decision is FENCE:
        fence(step, event, before)
    else:
        take_over(step, event, before, decision)


def refusal_of(step: TransactionStep, event: InitProducerId) -> ErrorCode:
    """The error of an InitProducerId that is refused whatever the state of its id; NONE where the decision depends on
    the id.
    """
    if not event.transactional_id or not is_storable(event.transactional_id):
        # DIVERGES: for an id above 32,767 bytes Apache Kafka answers UNKNOWN_SERVER_ERROR, after an exception while it
        # builds the record.
        return ErrorCode.INVALID_REQUEST
    if (event.producer_id == NO_PRODUCER_ID) is not (event.producer_epoch == NO_PRODUCER_EPOCH):
        return ErrorCode.INVALID_REQUEST
    if not 0 < event.timeout_ms <= step.config.max_timeout_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return ErrorCode.NONE


def create(step: TransactionStep, event: InitProducerId) -> None:
    producer_id = step.next_producer_id()
    if producer_id is None:
        step.reply(event.waiter, ProducerIdAnswer(NO_IDS))
        return
    store_producer(step, event, created(producer_id, event.timeout_ms, step.wall_ms))


def take_over(step: TransactionStep, event: InitProducerId, before: Transaction, move: Move) -> None:
    """Give the transactional id to the producer: no open transaction prevents it."""
    timeout_ms, wall_ms = event.timeout_ms, step.wall_ms
    if move is REPEAT:
        # DIVERGES: for the last epoch of a producer id Apache Kafka answers UNKNOWN_SERVER_ERROR, after an exception.
        store_producer(step, event, emptied(before, timeout_ms, wall_ms))
        return
    goes_on = move is GO_ON
    if not before.is_exhausted:
        store_producer(step, event, bumped(before, timeout_ms, wall_ms, goes_on=goes_on))
        return
    producer_id = step.next_producer_id()
    if producer_id is None:
        step.reply(event.waiter, ProducerIdAnswer(NO_IDS))
        return
    store_producer(step, event, rotated(before, producer_id, timeout_ms, wall_ms, goes_on=goes_on))


def store_producer(step: TransactionStep, event: InitProducerId, after: Transaction) -> None:
    step.store(event.transactional_id, after)
    step.answer_when_committed(event.waiter, ProducerIdAnswer(ErrorCode.NONE, after.producer_id, after.producer_epoch))


def fence(step: TransactionStep, event: InitProducerId, before: Transaction) -> None:
    """Abort the open transaction of the earlier producer.

    The client repeats its request until the abort is complete.
    """
    after = aborted_by_coordinator(step, before, event.transaction_version)
    if after is None:
        step.reply(event.waiter, ProducerIdAnswer(NO_IDS))
        return
    step.store(event.transactional_id, after)
    step.answer_when_committed(event.waiter, ProducerIdAnswer(ErrorCode.CONCURRENT_TRANSACTIONS))


def aborted_by_coordinator(step: TransactionStep, before: Transaction, transaction_version: int) -> Transaction | None:
    """The transaction aborted under an epoch that its producer does not have; None where producer ids are missing."""
    if transaction_version < EPOCH_BUMP_VERSION or before.producer_epoch == EPOCH_MAX:
        return fenced(before, step.wall_ms)
    next_producer_id = step.next_producer_id() if before.is_exhausted else NO_PRODUCER_ID
    if next_producer_id is None:
        return None
    return prepared(
        before,
        is_commit=False,
        client_version=transaction_version,
        next_producer_id=next_producer_id,
        wall_ms=step.wall_ms,
    )
