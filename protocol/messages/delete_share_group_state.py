"""DeleteShareGroupState (API 86; KIP-932): the group coordinator deletes the state of share partitions."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int16, Int32, Uuid, empty, message, nullable, struct


@struct
class PartitionData:
    partition: Int32


@struct
class DeleteStateData:
    topic_id: Uuid
    partitions: list[PartitionData] = empty()


@message(key=86, versions="0", flexible="0+")
class DeleteShareGroupStateRequest:
    group_id: str
    topics: list[DeleteStateData] = empty()


@struct
class PartitionResult:
    partition: Int32
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = None


@struct
class DeleteStateResult:
    topic_id: Uuid
    partitions: list[PartitionResult] = empty()


@message(key=86, versions="0", flexible="0+")
class DeleteShareGroupStateResponse:
    results: list[DeleteStateResult] = empty()
