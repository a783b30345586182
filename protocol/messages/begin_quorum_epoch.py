"""BeginQuorumEpoch (API 53): a new leader announces itself to a voter."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import ZERO_UUID, Int16, Int32, UInt16, Uuid, empty, message, nullable, since, struct, tag


@struct
class PartitionData:
    partition_index: Int32
    voter_directory_id: Annotated[Uuid, since(1)] = ZERO_UUID
    leader_id: Int32
    leader_epoch: Int32


@struct
class TopicData:
    topic_name: str
    partitions: list[PartitionData] = empty()


@struct
class LeaderEndpoint:
    name: str
    host: str
    port: UInt16


@message(key=53, versions="0-1", flexible="1+")
class BeginQuorumEpochRequest:
    cluster_id: Annotated[str | None, nullable()] = None
    voter_id: Annotated[Int32, since(1)] = -1
    topics: list[TopicData] = empty()
    leader_endpoints: Annotated[list[LeaderEndpoint], since(1)] = empty()


@struct
class ResponsePartitionData:
    partition_index: Int32
    error_code: Int16 = 0
    leader_id: Int32
    leader_epoch: Int32


@struct
class ResponseTopicData:
    topic_name: str
    partitions: list[ResponsePartitionData] = empty()


@struct
class NodeEndpoint:
    node_id: Int32
    host: str
    port: UInt16


@message(key=53, versions="0-1", flexible="1+")
class BeginQuorumEpochResponse:
    error_code: Int16 = 0
    topics: list[ResponseTopicData] = empty()
    node_endpoints: Annotated[list[NodeEndpoint], since(1), tag(0)] = empty()
