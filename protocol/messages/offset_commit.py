"""OffsetCommit (API 8): store the offsets a group has reached."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import ZERO_UUID, Int16, Int32, Int64, Uuid, empty, message, nullable, since, struct, until


@struct
class OffsetCommitRequestPartition:
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Annotated[Int32, since(6)] = -1
    committed_metadata: Annotated[str | None, nullable()] = ""


@struct
class OffsetCommitRequestTopic:
    name: Annotated[str, until(9)] = ""
    topic_id: Annotated[Uuid, since(10)] = ZERO_UUID
    partitions: list[OffsetCommitRequestPartition] = empty()


@message(key=8, versions="2-10", flexible="8+")
class OffsetCommitRequest:
    group_id: str
    generation_id_or_member_epoch: Int32 = -1
    member_id: str
    group_instance_id: Annotated[str | None, since(7), nullable(7)] = None
    retention_time_ms: Annotated[Int64, until(4)] = -1
    topics: list[OffsetCommitRequestTopic] = empty()


@struct
class OffsetCommitResponsePartition:
    partition_index: Int32
    error_code: Int16 = 0


@struct
class OffsetCommitResponseTopic:
    name: Annotated[str, until(9)] = ""
    topic_id: Annotated[Uuid, since(10)] = ZERO_UUID
    partitions: list[OffsetCommitResponsePartition] = empty()


@message(key=8, versions="2-10", flexible="8+")
class OffsetCommitResponse:
    throttle_time_ms: Annotated[Int32, since(3)] = 0
    topics: list[OffsetCommitResponseTopic] = empty()
