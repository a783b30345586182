"""Vote (API 52): a candidate asks a voter for its vote in an epoch, or for a pre-vote."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import (
    ZERO_UUID,
    Int16,
    Int32,
    Int64,
    UInt16,
    Uuid,
    empty,
    message,
    nullable,
    since,
    struct,
    tag,
)


@struct
class PartitionData:
    partition_index: Int32
    replica_epoch: Int32
    replica_id: Int32
    replica_directory_id: Annotated[Uuid, since(1)] = ZERO_UUID
    voter_directory_id: Annotated[Uuid, since(1)] = ZERO_UUID
    last_offset_epoch: Int32
    last_offset: Int64
    pre_vote: Annotated[bool, since(2)] = False


@struct
class TopicData:
    topic_name: str
    partitions: list[PartitionData] = empty()


@message(key=52, versions="0-2", flexible="0+")
class VoteRequest:
    cluster_id: Annotated[str | None, nullable()] = None
    voter_id: Annotated[Int32, since(1)] = -1
    topics: list[TopicData] = empty()


@struct
class ResponsePartitionData:
    partition_index: Int32
    error_code: Int16 = 0
    leader_id: Int32
    leader_epoch: Int32
    vote_granted: bool


@struct
class ResponseTopicData:
    topic_name: str
    partitions: list[ResponsePartitionData] = empty()


@struct
class NodeEndpoint:
    node_id: Int32
    host: str
    port: UInt16


@message(key=52, versions="0-2", flexible="0+")
class VoteResponse:
    error_code: Int16 = 0
    topics: list[ResponseTopicData] = empty()
    node_endpoints: Annotated[list[NodeEndpoint], since(1), tag(0)] = empty()
