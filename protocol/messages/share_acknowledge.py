"""ShareAcknowledge (API 79; KIP-932): acknowledge records that a member of a share group acquired."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int8, Int16, Int32, Int64, Uuid, empty, message, nullable, since, struct


@struct
class AcknowledgementBatch:
    first_offset: Int64
    last_offset: Int64
    acknowledge_types: list[Int8] = empty()


@struct
class AcknowledgePartition:
    partition_index: Int32
    acknowledgement_batches: list[AcknowledgementBatch] = empty()


@struct
class AcknowledgeTopic:
    topic_id: Uuid
    partitions: list[AcknowledgePartition] = empty()


@message(key=79, versions="1-2", flexible="0+")
class ShareAcknowledgeRequest:
    group_id: Annotated[str | None, nullable()] = None
    member_id: Annotated[str | None, nullable()]
    share_session_epoch: Int32
    is_renew_ack: Annotated[bool, since(2)] = False
    topics: list[AcknowledgeTopic] = empty()


@struct
class LeaderIdAndEpoch:
    leader_id: Int32
    leader_epoch: Int32


@struct
class PartitionData:
    partition_index: Int32
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = None
    current_leader: LeaderIdAndEpoch


@struct
class ShareAcknowledgeTopicResponse:
    topic_id: Uuid
    partitions: list[PartitionData] = empty()


@struct
class NodeEndpoint:
    node_id: Int32
    host: str
    port: Int32
    rack: Annotated[str | None, nullable()] = None


@message(key=79, versions="1-2", flexible="0+")
class ShareAcknowledgeResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = None
    acquisition_lock_timeout_ms: Annotated[Int32, since(2)] = 0
    responses: list[ShareAcknowledgeTopicResponse] = empty()
    node_endpoints: list[NodeEndpoint] = empty()
