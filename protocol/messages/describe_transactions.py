"""DescribeTransactions (API 65): the state of transactional ids and the partitions of their transactions."""

from __future__ import annotations

from moldau.protocol.schema import Int16, Int32, Int64, empty, message, struct


@message(key=65, versions="0", flexible="0+")
class DescribeTransactionsRequest:
    transactional_ids: list[str] = empty()


@struct
class TopicData:
    topic: str
    partitions: list[Int32] = empty()


@struct
class TransactionState:
    error_code: Int16 = 0
    transactional_id: str
    transaction_state: str = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = 0
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: list[TopicData] = empty()


@message(key=65, versions="0", flexible="0+")
class DescribeTransactionsResponse:
    throttle_time_ms: Int32 = 0
    transaction_states: list[TransactionState] = empty()
