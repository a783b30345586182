"""ListTransactions (API 66): the transactional ids of a broker's coordinators, by state, producer, duration or name."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int16, Int32, Int64, empty, message, nullable, since, struct


@message(key=66, versions="0-2", flexible="0+")
class ListTransactionsRequest:
    state_filters: list[str] = empty()
    producer_id_filters: list[Int64] = empty()
    duration_filter: Annotated[Int64, since(1)] = -1
    """The shortest duration (ms) of the transactions to list; a negative number means transactions of any duration."""
    transactional_id_pattern: Annotated[str | None, since(2), nullable(2)] = None


@struct
class TransactionState:
    transactional_id: str
    producer_id: Int64
    transaction_state: str


@message(key=66, versions="0-2", flexible="0+")
class ListTransactionsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: list[str] = empty()
    transaction_states: list[TransactionState] = empty()
