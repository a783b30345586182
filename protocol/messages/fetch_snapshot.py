"""FetchSnapshot (API 59): read bytes of a snapshot of the metadata log."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import (
    ZERO_UUID,
    FetchedRecords,
    Int16,
    Int32,
    Int64,
    UInt16,
    Uuid,
    empty,
    message,
    nullable,
    since,
    struct,
    tag,
)


@struct
class SnapshotId:
    end_offset: Int64
    epoch: Int32


@struct
class PartitionSnapshot:
    partition: Int32
    current_leader_epoch: Int32
    snapshot_id: SnapshotId
    position: Int64
    replica_directory_id: Annotated[Uuid, since(1), tag(0)] = ZERO_UUID


@struct
class TopicSnapshot:
    name: str
    partitions: list[PartitionSnapshot] = empty()


@message(key=59, versions="0-1", flexible="0+")
class FetchSnapshotRequest:
    cluster_id: Annotated[str | None, nullable(), tag(0)] = None
    replica_id: Int32 = -1
    max_bytes: Int32 = 2147483647
    topics: list[TopicSnapshot] = empty()


@struct
class LeaderIdAndEpoch:
    leader_id: Int32
    leader_epoch: Int32


@struct
class ResponsePartitionSnapshot:
    index: Int32
    error_code: Int16 = 0
    snapshot_id: SnapshotId
    current_leader: Annotated[LeaderIdAndEpoch | None, tag(0)] = None
    size: Int64
    position: Int64
    unaligned_records: FetchedRecords


@struct
class ResponseTopicSnapshot:
    name: str
    partitions: list[ResponsePartitionSnapshot] = empty()


@struct
class NodeEndpoint:
    node_id: Int32
    host: str
    port: UInt16


@message(key=59, versions="0-1", flexible="0+")
class FetchSnapshotResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    topics: list[ResponseTopicSnapshot] = empty()
    node_endpoints: Annotated[list[NodeEndpoint], since(1), tag(0)] = empty()
