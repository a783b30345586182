"""DeleteRecords (API 21): advance the log start offset of partitions."""

from __future__ import annotations

from moldau.protocol.schema import Int16, Int32, Int64, empty, message, struct


@struct
class DeleteRecordsPartition:
    partition_index: Int32
    offset: Int64


@struct
class DeleteRecordsTopic:
    name: str
    partitions: list[DeleteRecordsPartition] = empty()


@message(key=21, versions="0-2", flexible="2+")
class DeleteRecordsRequest:
    topics: list[DeleteRecordsTopic] = empty()
    timeout_ms: Int32


@struct
class DeleteRecordsPartitionResult:
    partition_index: Int32
    low_watermark: Int64
    error_code: Int16 = 0


@struct
class DeleteRecordsTopicResult:
    name: str
    partitions: list[DeleteRecordsPartitionResult] = empty()


@message(key=21, versions="0-2", flexible="2+")
class DeleteRecordsResponse:
    throttle_time_ms: Int32 = 0
    topics: list[DeleteRecordsTopicResult] = empty()
