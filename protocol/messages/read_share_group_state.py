"""ReadShareGroupState (API 84; KIP-932): the leader of a partition reads the state of its share partitions."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int8, Int16, Int32, Int64, Uuid, empty, message, nullable, struct


@struct
class PartitionData:
    partition: Int32
    leader_epoch: Int32


@struct
class ReadStateData:
    topic_id: Uuid
    partitions: list[PartitionData] = empty()


@message(key=84, versions="0", flexible="0+")
class ReadShareGroupStateRequest:
    group_id: str
    topics: list[ReadStateData] = empty()


@struct
class StateBatch:
    first_offset: Int64
    last_offset: Int64
    delivery_state: Int8
    delivery_count: Int16


@struct
class PartitionResult:
    partition: Int32
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = None
    state_epoch: Int32
    start_offset: Int64
    state_batches: list[StateBatch] = empty()


@struct
class ReadStateResult:
    topic_id: Uuid
    partitions: list[PartitionResult] = empty()


@message(key=84, versions="0", flexible="0+")
class ReadShareGroupStateResponse:
    results: list[ReadStateResult] = empty()
