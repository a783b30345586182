"""The records of `__remote_log_metadata`. The `key` of each declaration is the record type."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Bytes, Int8, Int32, Int64, Uuid, empty, message, nullable, struct, tag


@struct
class TopicIdPartitionEntry:
    name: str
    id: Uuid
    partition: Int32


@struct
class RemoteLogSegmentIdEntry:
    topic_id_partition: TopicIdPartitionEntry
    id: Uuid


@struct
class SegmentLeaderEpochEntry:
    leader_epoch: Int32
    offset: Int64


@message(key=0, versions="0", flexible="0+")
class RemoteLogSegmentMetadataRecord:
    remote_log_segment_id: RemoteLogSegmentIdEntry
    start_offset: Int64
    end_offset: Int64
    broker_id: Int32
    max_timestamp_ms: Int64
    event_timestamp_ms: Int64
    segment_leader_epochs: list[SegmentLeaderEpochEntry] = empty()
    segment_size_in_bytes: Int32
    custom_metadata: Annotated[Bytes | None, nullable()] = None
    remote_log_segment_state: Int8
    txn_index_empty: Annotated[bool, tag(0)] = False


@message(key=1, versions="0", flexible="0+")
class RemoteLogSegmentMetadataUpdateRecord:
    remote_log_segment_id: RemoteLogSegmentIdEntry
    broker_id: Int32
    event_timestamp_ms: Int64
    custom_metadata: Annotated[Bytes | None, nullable()] = None
    remote_log_segment_state: Int8


@message(key=2, versions="0", flexible="0+")
class RemotePartitionDeleteMetadataRecord:
    topic_id_partition: TopicIdPartitionEntry
    broker_id: Int32
    event_timestamp_ms: Int64
    remote_partition_delete_state: Int8


@message(key=3, versions="0", flexible="0+")
class RemoteLogSegmentMetadataSnapshotRecord:
    segment_id: Uuid
    start_offset: Int64
    end_offset: Int64
    broker_id: Int32
    max_timestamp_ms: Int64
    event_timestamp_ms: Int64
    segment_leader_epochs: list[SegmentLeaderEpochEntry] = empty()
    segment_size_in_bytes: Int32
    custom_metadata: Annotated[Bytes | None, nullable()] = None
    remote_log_segment_state: Int8
    txn_index_empty: Annotated[bool, tag(0)] = False
