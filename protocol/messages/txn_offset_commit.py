"""TxnOffsetCommit (API 28): store the offsets a group has reached as part of a transaction."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import ZERO_UUID, Int16, Int32, Int64, Uuid, empty, message, nullable, since, struct, until


@struct
class TxnOffsetCommitRequestPartition:
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Annotated[Int32, since(2)] = -1
    committed_metadata: Annotated[str | None, nullable()] = ""


@struct
class TxnOffsetCommitRequestTopic:
    name: Annotated[str, until(5)] = ""
    topic_id: Annotated[Uuid, since(6)] = ZERO_UUID
    partitions: list[TxnOffsetCommitRequestPartition] = empty()


@message(key=28, versions="0-6", flexible="3+")
class TxnOffsetCommitRequest:
    transactional_id: str
    group_id: str
    producer_id: Int64
    producer_epoch: Int16
    generation_id_or_member_epoch: Annotated[Int32, since(3)] = -1
    member_id: Annotated[str, since(3)] = ""
    group_instance_id: Annotated[str | None, since(3), nullable(3)] = None
    topics: list[TxnOffsetCommitRequestTopic] = empty()


@struct
class TxnOffsetCommitResponsePartition:
    partition_index: Int32
    error_code: Int16 = 0


@struct
class TxnOffsetCommitResponseTopic:
    name: Annotated[str, until(5)] = ""
    topic_id: Annotated[Uuid, since(6)] = ZERO_UUID
    partitions: list[TxnOffsetCommitResponsePartition] = empty()


@message(key=28, versions="0-6", flexible="3+")
class TxnOffsetCommitResponse:
    throttle_time_ms: Int32 = 0
    topics: list[TxnOffsetCommitResponseTopic] = empty()
