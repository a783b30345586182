"""CreatePartitions (API 37): add partitions to topics."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int16, Int32, empty, message, nullable, struct


@struct
class CreatePartitionsAssignment:
    broker_ids: list[Int32] = empty()


@struct
class CreatePartitionsTopic:
    name: str
    count: Int32
    assignments: Annotated[list[CreatePartitionsAssignment] | None, nullable()] = empty()


@message(key=37, versions="0-3", flexible="2+")
class CreatePartitionsRequest:
    topics: list[CreatePartitionsTopic] = empty()
    timeout_ms: Int32
    validate_only: bool


@struct
class CreatePartitionsTopicResult:
    name: str
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = None


@message(key=37, versions="0-3", flexible="2+")
class CreatePartitionsResponse:
    throttle_time_ms: Int32 = 0
    results: list[CreatePartitionsTopicResult] = empty()
