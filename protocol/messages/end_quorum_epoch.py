"""EndQuorumEpoch (API 54): a leader resigns, and names its preferred successors."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int16, Int32, UInt16, Uuid, empty, message, nullable, since, struct, tag, until


@struct
class ReplicaInfo:
    candidate_id: Int32
    candidate_directory_id: Uuid


@struct
class PartitionData:
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32
    preferred_successors: Annotated[list[Int32], until(0)] = empty()
    preferred_candidates: Annotated[list[ReplicaInfo], since(1)] = empty()


@struct
class TopicData:
    topic_name: str
    partitions: list[PartitionData] = empty()


@struct
class LeaderEndpoint:
    name: str
    host: str
    port: UInt16


@message(key=54, versions="0-1", flexible="1+")
class EndQuorumEpochRequest:
    cluster_id: Annotated[str | None, nullable()] = None
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


@message(key=54, versions="0-1", flexible="1+")
class EndQuorumEpochResponse:
    error_code: Int16 = 0
    topics: list[ResponseTopicData] = empty()
    node_endpoints: Annotated[list[NodeEndpoint], since(1), tag(0)] = empty()
