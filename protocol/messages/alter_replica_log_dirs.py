"""AlterReplicaLogDirs (API 34): move replicas between the log directories of one broker."""

from __future__ import annotations

from moldau.protocol.schema import Int16, Int32, empty, message, struct


@struct
class AlterReplicaLogDirTopic:
    name: str
    partitions: list[Int32] = empty()


@struct
class AlterReplicaLogDir:
    path: str
    topics: list[AlterReplicaLogDirTopic] = empty()


@message(key=34, versions="1-2", flexible="2+")
class AlterReplicaLogDirsRequest:
    dirs: list[AlterReplicaLogDir] = empty()


@struct
class AlterReplicaLogDirPartitionResult:
    partition_index: Int32
    error_code: Int16 = 0


@struct
class AlterReplicaLogDirTopicResult:
    topic_name: str
    partitions: list[AlterReplicaLogDirPartitionResult] = empty()


@message(key=34, versions="1-2", flexible="2+")
class AlterReplicaLogDirsResponse:
    throttle_time_ms: Int32 = 0
    results: list[AlterReplicaLogDirTopicResult] = empty()
