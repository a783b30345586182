"""AlterShareGroupOffsets (API 91; KIP-932): set the start offsets of an empty share group."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int16, Int32, Int64, Uuid, empty, message, nullable, struct


@struct
class AlterShareGroupOffsetsRequestPartition:
    partition_index: Int32
    start_offset: Int64


@struct
class AlterShareGroupOffsetsRequestTopic:
    topic_name: str
    partitions: list[AlterShareGroupOffsetsRequestPartition] = empty()


@message(key=91, versions="0", flexible="0+")
class AlterShareGroupOffsetsRequest:
    group_id: str
    topics: list[AlterShareGroupOffsetsRequestTopic] = empty()


@struct
class AlterShareGroupOffsetsResponsePartition:
    partition_index: Int32
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = None


@struct
class AlterShareGroupOffsetsResponseTopic:
    topic_name: str
    topic_id: Uuid
    partitions: list[AlterShareGroupOffsetsResponsePartition] = empty()


@message(key=91, versions="0", flexible="0+")
class AlterShareGroupOffsetsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = None
    responses: list[AlterShareGroupOffsetsResponseTopic] = empty()
