"""DescribeShareGroupOffsets (API 90; KIP-932): the start offsets and the lag of share groups."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int16, Int32, Int64, Uuid, empty, message, nullable, since, struct


@struct
class DescribeShareGroupOffsetsRequestTopic:
    topic_name: str
    partitions: list[Int32] = empty()


@struct
class DescribeShareGroupOffsetsRequestGroup:
    group_id: str
    topics: Annotated[list[DescribeShareGroupOffsetsRequestTopic] | None, nullable()] = empty()


@message(key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsRequest:
    groups: list[DescribeShareGroupOffsetsRequestGroup] = empty()


@struct
class DescribeShareGroupOffsetsResponsePartition:
    partition_index: Int32
    start_offset: Int64
    leader_epoch: Int32
    lag: Annotated[Int64, since(1)] = -1
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = None


@struct
class DescribeShareGroupOffsetsResponseTopic:
    topic_name: str
    topic_id: Uuid
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = empty()


@struct
class DescribeShareGroupOffsetsResponseGroup:
    group_id: str
    topics: list[DescribeShareGroupOffsetsResponseTopic] = empty()
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = None


@message(key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsResponse:
    throttle_time_ms: Int32 = 0
    groups: list[DescribeShareGroupOffsetsResponseGroup] = empty()
