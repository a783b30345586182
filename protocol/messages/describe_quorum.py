"""DescribeQuorum (API 55): the state of the controller quorum."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import ZERO_UUID, Int16, Int32, Int64, UInt16, Uuid, empty, message, nullable, since, struct


@struct
class PartitionData:
    partition_index: Int32


@struct
class TopicData:
    topic_name: str
    partitions: list[PartitionData] = empty()


@message(key=55, versions="0-2", flexible="0+")
class DescribeQuorumRequest:
    topics: list[TopicData] = empty()


@struct
class ReplicaState:
    replica_id: Int32
    replica_directory_id: Annotated[Uuid, since(2)] = ZERO_UUID
    log_end_offset: Int64
    last_fetch_timestamp: Annotated[Int64, since(1)] = -1
    last_caught_up_timestamp: Annotated[Int64, since(1)] = -1


@struct
class ResponsePartitionData:
    partition_index: Int32
    error_code: Int16 = 0
    error_message: Annotated[str | None, since(2), nullable(2)] = ""
    leader_id: Int32
    leader_epoch: Int32
    high_watermark: Int64
    current_voters: list[ReplicaState] = empty()
    observers: list[ReplicaState] = empty()


@struct
class ResponseTopicData:
    topic_name: str
    partitions: list[ResponsePartitionData] = empty()


@struct
class Listener:
    name: str
    host: str
    port: UInt16


@struct
class Node:
    node_id: Int32
    listeners: list[Listener] = empty()


@message(key=55, versions="0-2", flexible="0+")
class DescribeQuorumResponse:
    error_code: Int16 = 0
    error_message: Annotated[str | None, since(2), nullable(2)] = ""
    topics: list[ResponseTopicData] = empty()
    nodes: Annotated[list[Node], since(2)] = empty()
