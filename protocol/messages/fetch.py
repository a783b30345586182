"""Fetch (API 1): consumers and followers read record batches; the response may wait for records."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import (
    ZERO_UUID,
    FetchedRecords,
    Int8,
    Int16,
    Int32,
    Int64,
    Uuid,
    empty,
    message,
    nullable,
    since,
    struct,
    tag,
    until,
)


@struct
class ReplicaState:
    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


@struct
class FetchPartition:
    partition: Int32
    current_leader_epoch: Annotated[Int32, since(9)] = -1
    fetch_offset: Int64
    last_fetched_epoch: Annotated[Int32, since(12)] = -1
    log_start_offset: Annotated[Int64, since(5)] = -1
    partition_max_bytes: Int32
    replica_directory_id: Annotated[Uuid, since(17), tag(0)] = ZERO_UUID
    high_watermark: Annotated[Int64, since(18), tag(1)] = 9223372036854775807


@struct
class FetchTopic:
    topic: Annotated[str, until(12)] = ""
    topic_id: Annotated[Uuid, since(13)] = ZERO_UUID
    partitions: list[FetchPartition] = empty()


@struct
class ForgottenTopic:
    topic: Annotated[str, until(12)] = ""
    topic_id: Annotated[Uuid, since(13)] = ZERO_UUID
    partitions: list[Int32] = empty()


@message(key=1, versions="4-18", flexible="12+")
class FetchRequest:
    cluster_id: Annotated[str | None, since(12), nullable(12), tag(0)] = None
    replica_id: Annotated[Int32, until(14)] = -1
    replica_state: Annotated[ReplicaState | None, since(15), tag(1)] = None
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = 2147483647
    isolation_level: Int8 = 0
    session_id: Annotated[Int32, since(7)] = 0
    session_epoch: Annotated[Int32, since(7)] = -1
    topics: list[FetchTopic] = empty()
    forgotten_topics_data: Annotated[list[ForgottenTopic], since(7)] = empty()
    rack_id: Annotated[str, since(11)] = ""


@struct
class EpochEndOffset:
    epoch: Int32 = -1
    end_offset: Int64 = -1


@struct
class LeaderIdAndEpoch:
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


@struct
class SnapshotId:
    end_offset: Int64 = -1
    epoch: Int32 = -1


@struct
class AbortedTransaction:
    producer_id: Int64
    first_offset: Int64


@struct
class PartitionData:
    partition_index: Int32
    error_code: Int16 = 0
    high_watermark: Int64
    last_stable_offset: Int64 = -1
    log_start_offset: Annotated[Int64, since(5)] = -1
    diverging_epoch: Annotated[EpochEndOffset | None, since(12), tag(0)] = None
    current_leader: Annotated[LeaderIdAndEpoch | None, since(12), tag(1)] = None
    snapshot_id: Annotated[SnapshotId | None, since(12), tag(2)] = None
    aborted_transactions: Annotated[list[AbortedTransaction] | None, nullable()] = empty()
    preferred_read_replica: Annotated[Int32, since(11)] = -1
    records: Annotated[FetchedRecords | None, nullable()] = None


@struct
class FetchableTopicResponse:
    topic: Annotated[str, until(12)] = ""
    topic_id: Annotated[Uuid, since(13)] = ZERO_UUID
    partitions: list[PartitionData] = empty()


@struct
class NodeEndpoint:
    node_id: Int32
    host: str
    port: Int32
    rack: Annotated[str | None, nullable(16)] = None


@message(key=1, versions="4-18", flexible="12+")
class FetchResponse:
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(7)] = 0
    session_id: Annotated[Int32, since(7)] = 0
    responses: list[FetchableTopicResponse] = empty()
    node_endpoints: Annotated[list[NodeEndpoint], since(16), tag(0)] = empty()
