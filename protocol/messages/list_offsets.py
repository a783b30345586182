"""ListOffsets (API 2): find an offset by timestamp, or the earliest, latest or largest-timestamp offset."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int8, Int16, Int32, Int64, empty, message, since, struct


@struct
class ListOffsetsPartition:
    partition_index: Int32
    current_leader_epoch: Annotated[Int32, since(4)] = -1
    timestamp: Int64


@struct
class ListOffsetsTopic:
    name: str
    partitions: list[ListOffsetsPartition] = empty()


@message(key=2, versions="1-11", flexible="6+")
class ListOffsetsRequest:
    replica_id: Int32
    isolation_level: Annotated[Int8, since(2)] = 0
    topics: list[ListOffsetsTopic] = empty()
    timeout_ms: Annotated[Int32, since(10)] = 0


@struct
class ListOffsetsPartitionResponse:
    partition_index: Int32
    error_code: Int16 = 0
    timestamp: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Annotated[Int32, since(4)] = -1


@struct
class ListOffsetsTopicResponse:
    name: str
    partitions: list[ListOffsetsPartitionResponse] = empty()


@message(key=2, versions="1-11", flexible="6+")
class ListOffsetsResponse:
    throttle_time_ms: Annotated[Int32, since(2)] = 0
    topics: list[ListOffsetsTopicResponse] = empty()
