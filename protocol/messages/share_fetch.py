"""ShareFetch (API 78; KIP-932): acquire records for a member of a share group, and acknowledge earlier ones."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import (
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
)


@struct
class AcknowledgementBatch:
    first_offset: Int64
    last_offset: Int64
    acknowledge_types: list[Int8] = empty()


@struct
class FetchPartition:
    partition_index: Int32
    acknowledgement_batches: list[AcknowledgementBatch] = empty()


@struct
class FetchTopic:
    topic_id: Uuid
    partitions: list[FetchPartition] = empty()


@struct
class ForgottenTopic:
    topic_id: Uuid
    partitions: list[Int32] = empty()


@message(key=78, versions="1-2", flexible="0+")
class ShareFetchRequest:
    group_id: Annotated[str | None, nullable()] = None
    member_id: Annotated[str | None, nullable()]
    share_session_epoch: Int32
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = 2147483647
    max_records: Int32
    batch_size: Int32
    share_acquire_mode: Annotated[Int8, since(2)] = 0
    is_renew_ack: Annotated[bool, since(2)] = False
    topics: list[FetchTopic] = empty()
    forgotten_topics_data: list[ForgottenTopic] = empty()


@struct
class LeaderIdAndEpoch:
    leader_id: Int32
    leader_epoch: Int32


@struct
class AcquiredRecords:
    first_offset: Int64
    last_offset: Int64
    delivery_count: Int16


@struct
class PartitionData:
    partition_index: Int32
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = None
    acknowledge_error_code: Int16
    acknowledge_error_message: Annotated[str | None, nullable()] = None
    current_leader: LeaderIdAndEpoch
    records: FetchedRecords
    acquired_records: list[AcquiredRecords] = empty()


@struct
class ShareFetchableTopicResponse:
    topic_id: Uuid
    partitions: list[PartitionData] = empty()


@struct
class NodeEndpoint:
    node_id: Int32
    host: str
    port: Int32
    rack: Annotated[str | None, nullable()] = None


@message(key=78, versions="1-2", flexible="0+")
class ShareFetchResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = None
    acquisition_lock_timeout_ms: Int32
    responses: list[ShareFetchableTopicResponse] = empty()
    node_endpoints: list[NodeEndpoint] = empty()
