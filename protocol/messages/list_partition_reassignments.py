"""ListPartitionReassignments (API 46): the reassignments under way."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int16, Int32, empty, message, nullable, struct


@struct
class ListPartitionReassignmentsTopics:
    name: str
    partition_indexes: list[Int32] = empty()


@message(key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsRequest:
    timeout_ms: Int32 = 60000
    topics: Annotated[list[ListPartitionReassignmentsTopics] | None, nullable()] = None


@struct
class OngoingPartitionReassignment:
    partition_index: Int32
    replicas: list[Int32] = empty()
    adding_replicas: list[Int32] = empty()
    removing_replicas: list[Int32] = empty()


@struct
class OngoingTopicReassignment:
    name: str
    partitions: list[OngoingPartitionReassignment] = empty()


@message(key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = ""
    topics: list[OngoingTopicReassignment] = empty()
