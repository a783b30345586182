"""EndTxn: stores the outcome that the client requests. The outcome is final once the record is committed."""

from __future__ import annotations

from moldau.coordinator.transaction.claims import claim_of
from moldau.coordinator.transaction.events import EPOCH_BUMP_VERSION, NO_PRODUCER_ID, EndTransaction, ProducerIdAnswer
from moldau.coordinator.transaction.init_producer_id import NO_IDS
from moldau.coordinator.transaction.step import TransactionStep
from moldau.coordinator.transaction.table import COMMIT, TABLE, TELL, Intent
from moldau.coordinator.transaction.transaction import Transaction, prepared
from moldau.protocol.errors import ErrorCode


def end_transaction(step: TransactionStep, event: EndTransaction) -> None:
    if not event.transactional_id:
        step.reply(event.waiter, ProducerIdAnswer(ErrorCode.INVALID_REQUEST))
        return
    before = step.transactions.committed.get(event.transactional_id)
    claim = claim_of(before, event.producer_id, event.producer_epoch)
    decision = TABLE[intent_of(event)][step.transactions.standing(event.transactional_id)][claim]
    if isinstance(decision, ErrorCode) or before is None:
        assert isinstance(decision, ErrorCode), "a transactional id that does not exist has no transaction to end"
        step.reply(event.waiter, ProducerIdAnswer(decision))
    elif decision is TELL:
        step.reply(event.waiter, ProducerIdAnswer(ErrorCode.NONE, before.producer_id, before.producer_epoch))
    else:
        end(step, event, before, is_commit=decision is COMMIT)


def intent_of(event: EndTransaction) -> Intent:
    if event.client_version >= EPOCH_BUMP_VERSION:
        return Intent.COMMIT_2 if event.is_commit else Intent.ABORT_2
    return Intent.COMMIT_1 if event.is_commit else Intent.ABORT_1


def end(step: TransactionStep, event: EndTransaction, before: Transaction, *, is_commit: bool) -> None:
    is_bumped = event.client_version >= EPOCH_BUMP_VERSION
    next_producer_id = step.next_producer_id() if is_bumped and before.is_exhausted else NO_PRODUCER_ID
    if next_producer_id is None:
        step.reply(event.waiter, ProducerIdAnswer(NO_IDS))
        return
    after = prepared(
        before,
        is_commit=is_commit,
        client_version=event.client_version,
        next_producer_id=next_producer_id,
        wall_ms=step.wall_ms,
    )
    step.store(event.transactional_id, after)
    step.answer_when_committed(event.waiter, answer_to(after) if is_bumped else ProducerIdAnswer(ErrorCode.NONE))


def answer_to(after: Transaction) -> ProducerIdAnswer:
    """The producer id and epoch with which a client of protocol 2 continues after the completion."""
    if after.next_producer_id != NO_PRODUCER_ID:
        return ProducerIdAnswer(ErrorCode.NONE, after.next_producer_id, 0)
    return ProducerIdAnswer(ErrorCode.NONE, after.producer_id, after.producer_epoch)
