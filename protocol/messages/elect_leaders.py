"""ElectLeaders (API 43): trigger preferred or unclean leader elections."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int8, Int16, Int32, empty, message, nullable, since, struct


@struct
class TopicPartitions:
    topic: str
    partitions: list[Int32] = empty()


@message(key=43, versions="0-2", flexible="2+")
class ElectLeadersRequest:
    election_type: Annotated[Int8, since(1)] = 0
    topic_partitions: Annotated[list[TopicPartitions] | None, nullable()] = empty()
    timeout_ms: Int32 = 60000


@struct
class PartitionResult:
    partition_id: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = ""


@struct
class ReplicaElectionResult:
    topic: str = ""
    partition_result: list[PartitionResult] = empty()


@message(key=43, versions="0-2", flexible="2+")
class ElectLeadersResponse:
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(1)] = 0
    replica_election_results: list[ReplicaElectionResult] = empty()
