"""OffsetFetch (API 9): read the offsets that groups have committed."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import ZERO_UUID, Int16, Int32, Int64, Uuid, empty, message, nullable, since, struct, until


@struct
class OffsetFetchRequestTopic:
    name: Annotated[str, until(7)] = ""
    partition_indexes: Annotated[list[Int32], until(7)] = empty()


@struct
class OffsetFetchRequestTopics:
    name: Annotated[str, until(9)] = ""
    topic_id: Annotated[Uuid, since(10)] = ZERO_UUID
    partition_indexes: list[Int32] = empty()


@struct
class OffsetFetchRequestGroup:
    group_id: str
    member_id: Annotated[str | None, since(9), nullable(9)] = None
    member_epoch: Annotated[Int32, since(9)] = -1
    topics: Annotated[list[OffsetFetchRequestTopics] | None, nullable(8)] = empty()


@message(key=9, versions="1-10", flexible="6+")
class OffsetFetchRequest:
    group_id: Annotated[str, until(7)] = ""
    topics: Annotated[list[OffsetFetchRequestTopic] | None, until(7), nullable(2)] = empty()
    groups: Annotated[list[OffsetFetchRequestGroup], since(8)] = empty()
    require_stable: Annotated[bool, since(7)] = False


@struct
class OffsetFetchResponsePartition:
    partition_index: Annotated[Int32, until(7)] = 0
    committed_offset: Annotated[Int64, until(7)] = 0
    committed_leader_epoch: Annotated[Int32, since(5), until(7)] = -1
    metadata: Annotated[str | None, until(7), nullable()] = ""
    error_code: Annotated[Int16, until(7)] = 0


@struct
class OffsetFetchResponseTopic:
    name: Annotated[str, until(7)] = ""
    partitions: Annotated[list[OffsetFetchResponsePartition], until(7)] = empty()


@struct
class OffsetFetchResponsePartitions:
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = -1
    metadata: Annotated[str | None, nullable(8)] = ""
    error_code: Int16 = 0


@struct
class OffsetFetchResponseTopics:
    name: Annotated[str, until(9)] = ""
    topic_id: Annotated[Uuid, since(10)] = ZERO_UUID
    partitions: list[OffsetFetchResponsePartitions] = empty()


@struct
class OffsetFetchResponseGroup:
    group_id: str
    topics: list[OffsetFetchResponseTopics] = empty()
    error_code: Int16 = 0


@message(key=9, versions="1-10", flexible="6+")
class OffsetFetchResponse:
    throttle_time_ms: Annotated[Int32, since(3)] = 0
    topics: Annotated[list[OffsetFetchResponseTopic], until(7)] = empty()
    error_code: Annotated[Int16, since(2), until(7)] = 0
    groups: Annotated[list[OffsetFetchResponseGroup], since(8)] = empty()
