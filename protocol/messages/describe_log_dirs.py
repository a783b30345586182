"""DescribeLogDirs (API 35): the replicas in the log directories, their sizes, and the space on the disks."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int16, Int32, Int64, empty, message, nullable, since, struct


@struct
class DescribableLogDirTopic:
    topic: str
    partitions: list[Int32] = empty()


@message(key=35, versions="1-5", flexible="2+")
class DescribeLogDirsRequest:
    topics: Annotated[list[DescribableLogDirTopic] | None, nullable()] = empty()


@struct
class DescribeLogDirsPartition:
    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64
    is_future_key: bool


@struct
class DescribeLogDirsTopic:
    name: str
    partitions: list[DescribeLogDirsPartition] = empty()


@struct
class DescribeLogDirsResult:
    error_code: Int16 = 0
    log_dir: str
    topics: list[DescribeLogDirsTopic] = empty()
    total_bytes: Annotated[Int64, since(4)] = -1
    usable_bytes: Annotated[Int64, since(4)] = -1
    is_cordoned: Annotated[bool, since(5)] = False


@message(key=35, versions="1-5", flexible="2+")
class DescribeLogDirsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(3)] = 0
    results: list[DescribeLogDirsResult] = empty()
