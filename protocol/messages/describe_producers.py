"""DescribeProducers (API 61): the producer state of partitions."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int16, Int32, Int64, empty, message, nullable, struct


@struct
class TopicRequest:
    name: str
    partition_indexes: list[Int32] = empty()


@message(key=61, versions="0", flexible="0+")
class DescribeProducersRequest:
    topics: list[TopicRequest] = empty()


@struct
class ProducerState:
    producer_id: Int64
    producer_epoch: Int32
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32
    current_txn_start_offset: Int64 = -1


@struct
class PartitionResponse:
    partition_index: Int32
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = None
    active_producers: list[ProducerState] = empty()


@struct
class TopicResponse:
    name: str
    partitions: list[PartitionResponse] = empty()


@message(key=61, versions="0", flexible="0+")
class DescribeProducersResponse:
    throttle_time_ms: Int32 = 0
    topics: list[TopicResponse] = empty()
