"""AssignReplicasToDirs (API 73): a broker reports in which log directories its replicas are."""

from __future__ import annotations

from moldau.protocol.schema import ZERO_UUID, Int16, Int32, Int64, Uuid, empty, message, struct


@struct
class PartitionData:
    partition_index: Int32


@struct
class TopicData:
    topic_id: Uuid
    partitions: list[PartitionData] = empty()


@struct
class DirectoryData:
    id: Uuid
    topics: list[TopicData] = empty()


@message(key=73, versions="0", flexible="0+")
class AssignReplicasToDirsRequest:
    broker_id: Int32
    broker_epoch: Int64 = -1
    directories: list[DirectoryData] = empty()


@struct
class PartitionResult:
    partition_index: Int32 = 0
    error_code: Int16 = 0


@struct
class TopicResult:
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionResult] = empty()


@struct
class DirectoryResult:
    id: Uuid = ZERO_UUID
    topics: list[TopicResult] = empty()


@message(key=73, versions="0", flexible="0+")
class AssignReplicasToDirsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    directories: list[DirectoryResult] = empty()
