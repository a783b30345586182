"""OffsetDelete (API 47): delete committed offsets of a group."""

from __future__ import annotations

from moldau.protocol.schema import Int16, Int32, empty, message, struct


@struct
class OffsetDeleteRequestPartition:
    partition_index: Int32


@struct
class OffsetDeleteRequestTopic:
    name: str
    partitions: list[OffsetDeleteRequestPartition] = empty()


@message(key=47, versions="0", flexible="none")
class OffsetDeleteRequest:
    group_id: str
    topics: list[OffsetDeleteRequestTopic] = empty()


@struct
class OffsetDeleteResponsePartition:
    partition_index: Int32
    error_code: Int16 = 0


@struct
class OffsetDeleteResponseTopic:
    name: str
    partitions: list[OffsetDeleteResponsePartition] = empty()


@message(key=47, versions="0", flexible="none")
class OffsetDeleteResponse:
    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: list[OffsetDeleteResponseTopic] = empty()
