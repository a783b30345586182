"""What readers are told about transactional ids: their committed states."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from coordinator.transaction.events import TopicPartition
from coordinator.transaction.transaction import Transaction
from coordinator.transaction.transaction_state import NAMES
from protocol.messages.list_transactions import TransactionState as ListedTransaction

STATE_NAMES: Final = frozenset(NAMES.values())


class TransactionDescription(NamedTuple):
    """For DescribeTransactions."""

    state: str
    timeout_ms: int
    start_ms: int
    """Wall clock; -1 where there was no transaction since the producer has started."""
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]


def description_of(transaction: Transaction) -> TransactionDescription:
    return TransactionDescription(
        NAMES[transaction.state],
        transaction.timeout_ms,
        transaction.start_ms,
        transaction.producer_id,
        transaction.producer_epoch,
        tuple(sorted(transaction.partitions)),
    )


def unknown_states(state_filters: Iterable[str]) -> list[str]:
    """The filters of a ListTransactions that name no state."""
    return [name for name in state_filters if name not in STATE_NAMES]


def listed(
    transactions: Mapping[str, Transaction],
    state_filters: Collection[str],
    producer_ids: Collection[int],
    duration_ms: int,
    wall_ms: int,
) -> list[ListedTransaction]:
    """An empty filter, and a negative duration, let everything through. A transactional id without a transaction is as
    old as time, as it is for Apache Kafka."""
    states = {state for state, name in NAMES.items() if name in state_filters}
    return [
        ListedTransaction(
            transactional_id=transactional_id,
            producer_id=transaction.producer_id,
            transaction_state=NAMES[transaction.state],
        )
        for transactional_id, transaction in transactions.items()
        if (not producer_ids or transaction.producer_id in producer_ids)
        and (not state_filters or transaction.state in states)
        and (duration_ms < 0 or wall_ms - transaction.start_ms > duration_ms)
    ]
