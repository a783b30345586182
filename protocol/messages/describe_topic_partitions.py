"""DescribeTopicPartitions (API 75): describe topics page by page."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int16, Int32, Uuid, empty, message, nullable, struct


@struct
class TopicRequest:
    name: str


@struct
class Cursor:
    topic_name: str
    partition_index: Int32


@message(key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsRequest:
    topics: list[TopicRequest] = empty()
    response_partition_limit: Int32 = 2000
    cursor: Annotated[Cursor | None, nullable()] = None


@struct
class DescribeTopicPartitionsResponsePartition:
    error_code: Int16 = 0
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = -1
    replica_nodes: list[Int32] = empty()
    isr_nodes: list[Int32] = empty()
    eligible_leader_replicas: Annotated[list[Int32] | None, nullable()] = None
    last_known_elr: Annotated[list[Int32] | None, nullable()] = None
    offline_replicas: list[Int32] = empty()


@struct
class DescribeTopicPartitionsResponseTopic:
    error_code: Int16 = 0
    name: Annotated[str | None, nullable()] = ""
    topic_id: Uuid
    is_internal: bool = False
    partitions: list[DescribeTopicPartitionsResponsePartition] = empty()
    topic_authorized_operations: Int32 = -2147483648


@message(key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsResponse:
    throttle_time_ms: Int32 = 0
    topics: list[DescribeTopicPartitionsResponseTopic] = empty()
    next_cursor: Annotated[Cursor | None, nullable()] = None
