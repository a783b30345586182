"""InitializeShareGroupState (API 83; KIP-932): the group coordinator creates the state of share partitions."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int16, Int32, Int64, Uuid, empty, message, nullable, struct


@struct
class PartitionData:
    partition: Int32
    state_epoch: Int32
    start_offset: Int64


@struct
class InitializeStateData:
    topic_id: Uuid
    partitions: list[PartitionData] = empty()


@message(key=83, versions="0", flexible="0+")
class InitializeShareGroupStateRequest:
    group_id: str
    topics: list[InitializeStateData] = empty()


@struct
class PartitionResult:
    partition: Int32
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = None


@struct
class InitializeStateResult:
    topic_id: Uuid
    partitions: list[PartitionResult] = empty()


@message(key=83, versions="0", flexible="0+")
class InitializeShareGroupStateResponse:
    results: list[InitializeStateResult] = empty()
