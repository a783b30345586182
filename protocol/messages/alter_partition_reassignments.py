"""AlterPartitionReassignments (API 45): move replicas of partitions, or cancel a reassignment."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int16, Int32, empty, message, nullable, since, struct


@struct
class ReassignablePartition:
    partition_index: Int32
    replicas: Annotated[list[Int32] | None, nullable()] = None


@struct
class ReassignableTopic:
    name: str
    partitions: list[ReassignablePartition] = empty()


@message(key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsRequest:
    timeout_ms: Int32 = 60000
    allow_replication_factor_change: Annotated[bool, since(1)] = True
    topics: list[ReassignableTopic] = empty()


@struct
class ReassignablePartitionResponse:
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = ""


@struct
class ReassignableTopicResponse:
    name: str = ""
    partitions: list[ReassignablePartitionResponse] = empty()


@message(key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Annotated[bool, since(1)] = True
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = ""
    responses: list[ReassignableTopicResponse] = empty()
