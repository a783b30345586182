"""ReadShareGroupStateSummary (API 87; KIP-932): the start offsets of share partitions, without their batches."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int16, Int32, Int64, Uuid, empty, message, nullable, since, struct


@struct
class PartitionData:
    partition: Int32
    leader_epoch: Int32


@struct
class ReadStateSummaryData:
    topic_id: Uuid
    partitions: list[PartitionData] = empty()


@message(key=87, versions="0-1", flexible="0+")
class ReadShareGroupStateSummaryRequest:
    group_id: str
    topics: list[ReadStateSummaryData] = empty()


@struct
class PartitionResult:
    partition: Int32
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = None
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Annotated[Int32, since(1)] = -1


@struct
class ReadStateSummaryResult:
    topic_id: Uuid
    partitions: list[PartitionResult] = empty()


@message(key=87, versions="0-1", flexible="0+")
class ReadShareGroupStateSummaryResponse:
    results: list[ReadStateSummaryResult] = empty()
