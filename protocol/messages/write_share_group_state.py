"""WriteShareGroupState (API 85; KIP-932): the leader of a partition writes the state of its share partitions."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int8, Int16, Int32, Int64, Uuid, empty, message, nullable, since, struct


@struct
class StateBatch:
    first_offset: Int64
    last_offset: Int64
    delivery_state: Int8
    delivery_count: Int16


@struct
class PartitionData:
    partition: Int32
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Annotated[Int32, since(1)] = -1
    state_batches: list[StateBatch] = empty()


@struct
class WriteStateData:
    topic_id: Uuid
    partitions: list[PartitionData] = empty()


@message(key=85, versions="0-1", flexible="0+")
class WriteShareGroupStateRequest:
    group_id: str
    topics: list[WriteStateData] = empty()


@struct
class PartitionResult:
    partition: Int32
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = None


@struct
class WriteStateResult:
    topic_id: Uuid
    partitions: list[PartitionResult] = empty()


@message(key=85, versions="0-1", flexible="0+")
class WriteShareGroupStateResponse:
    results: list[WriteStateResult] = empty()
