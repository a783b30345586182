"""The records of `__consumer_offsets` that classic groups write; and the consumer's embedded protocol: subscriptions in
JoinGroup and assignments in SyncGroup."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import (
    ZERO_UUID,
    Bytes,
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


@message(key=1, versions="0", flexible="none")
class OffsetCommitKey:
    group: str
    topic: str
    partition: Int32


@message(key=1, versions="0-4", flexible="4+")
class OffsetCommitValue:
    offset: Int64
    leader_epoch: Annotated[Int32, since(3)] = -1
    metadata: str
    commit_timestamp: Int64
    expire_timestamp: Annotated[Int64, since(1), until(1)] = -1
    topic_id: Annotated[Uuid, since(4), tag(0)] = ZERO_UUID


@message(key=2, versions="0", flexible="none")
class GroupMetadataKey:
    group: str


@struct
class MemberMetadata:
    member_id: str
    group_instance_id: Annotated[str | None, since(3), nullable(3)] = None
    client_id: str
    client_host: str
    rebalance_timeout: Annotated[Int32, since(1)] = -1
    session_timeout: Int32
    subscription: Bytes
    assignment: Bytes


@message(key=2, versions="0-4", flexible="4+")
class GroupMetadataValue:
    protocol_type: str
    generation: Int32
    protocol: Annotated[str | None, nullable()] = ""
    leader: Annotated[str | None, nullable()] = ""
    current_state_timestamp: Annotated[Int64, since(2)] = -1
    members: list[MemberMetadata] = empty()


@struct
class TopicPartition:
    topic: str
    partitions: list[Int32] = empty()


@message(versions="0-3", flexible="none")
class ConsumerProtocolSubscription:
    topics: list[str] = empty()
    user_data: Annotated[Bytes | None, nullable()] = None
    owned_partitions: Annotated[list[TopicPartition], since(1)] = empty()
    generation_id: Annotated[Int32, since(2)] = -1
    rack_id: Annotated[str | None, since(3), nullable(3)] = None


@message(versions="0-3", flexible="none")
class ConsumerProtocolAssignment:
    assigned_partitions: list[TopicPartition] = empty()
    user_data: Annotated[Bytes | None, nullable()] = None
