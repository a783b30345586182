"""Descriptions and lists of transactional ids, from their committed states."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from moldau.coordinator.transaction.events import TopicPartition
from moldau.coordinator.transaction.transaction import Transaction
from moldau.coordinator.transaction.transaction_state import NAMES
from moldau.protocol.messages.list_transactions import TransactionState as ListedTransaction

STATE_NAMES: Final = frozenset(NAMES.values())


class TransactionDescription(NamedTuple):
    """The description of a transactional id for DescribeTransactions."""

    state: str
    timeout_ms: int
    start_ms: int
    """Start of the transaction (wall clock, ms); -1 where the producer has begun none."""
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
    """The state filters of a ListTransactions that match no state name."""
    return [name for name in state_filters if name not in STATE_NAMES]


def listed(
    transactions: Mapping[str, Transaction],
    state_filters: Collection[str],
    producer_ids: Collection[int],
    duration_ms: int,
    wall_ms: int,
) -> list[ListedTransaction]:
    """Whether the transactional id passes the filters.

    An empty filter and a negative duration let every id pass. The duration of an id without a transaction counts as
    infinite, as in Apache Kafka.
    """
    states = {state for state, name in NAMES.items() if name in state_filters}
    producer_ids = frozenset(producer_ids)
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
