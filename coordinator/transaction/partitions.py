"""AddPartitionsToTxn and AddOffsetsToTxn: partitions are stored in the transaction before records go to them."""

from __future__ import annotations

from moldau.coordinator.runtime.outcomes import ReplyWhenCommitted
from moldau.coordinator.runtime.write_errors import write_error
from moldau.coordinator.transaction.claims import claim_of
from moldau.coordinator.transaction.events import AddPartitions, PartitionErrors, TopicPartition, VerifyPartitions
from moldau.coordinator.transaction.step import TransactionStep
from moldau.coordinator.transaction.table import TABLE, Intent
from moldau.coordinator.transaction.transaction import Transaction, with_partitions
from moldau.coordinator.transaction.transaction_state import ONGOING
from moldau.protocol.errors import ErrorCode


def add_partitions(step: TransactionStep, event: AddPartitions) -> None:
    if not event.transactional_id:
        step.reply(event.waiter, ErrorCode.INVALID_REQUEST)
        return
    before = step.transactions.committed.get(event.transactional_id)
    claim = claim_of(before, event.producer_id, event.producer_epoch)
    decision = TABLE[Intent.ADD][step.transactions.standing(event.transactional_id)][claim]
    if isinstance(decision, ErrorCode) or before is None:
        assert isinstance(decision, ErrorCode), "a transactional id that does not exist has no transaction"
        step.reply(event.waiter, decision)
        return
    partitions = frozenset(event.partitions)
    if before.state is ONGOING and partitions <= before.partitions:
        step.reply(event.waiter, ErrorCode.NONE)
        return
    step.store(event.transactional_id, with_partitions(before, partitions, event.client_version, step.wall_ms))
    step.when_committed(ReplyWhenCommitted(event.waiter, ErrorCode.NONE, write_error))


def verify_partitions(step: TransactionStep, event: VerifyPartitions) -> None:
    """Report for each partition whether it is part of the transaction in the committed state."""
    step.reply(event.waiter, verified(step, event))


def verified(step: TransactionStep, event: VerifyPartitions) -> PartitionErrors:
    if not event.transactional_id:
        return dict.fromkeys(event.partitions, ErrorCode.INVALID_REQUEST)
    transaction = step.transactions.committed.get(event.transactional_id)
    claim = claim_of(transaction, event.producer_id, event.producer_epoch)
    decision = TABLE[Intent.VERIFY][step.transactions.committed_standing(event.transactional_id)][claim]
    if isinstance(decision, ErrorCode) or transaction is None:
        assert isinstance(decision, ErrorCode), "a transactional id that does not exist has no partitions"
        return dict.fromkeys(event.partitions, decision)
    return {partition: membership_of(transaction, partition) for partition in event.partitions}


def membership_of(transaction: Transaction, partition: TopicPartition) -> ErrorCode:
    return ErrorCode.NONE if partition in transaction.partitions else ErrorCode.TRANSACTION_ABORTABLE
