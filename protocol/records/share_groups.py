"""The records of `__consumer_offsets` that share groups write (KIP-932). The `key` of each declaration is the record
type."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int8, Int32, Int64, Uuid, empty, message, nullable, struct, tag


@message(key=10, versions="0", flexible="none")
class ShareGroupMemberMetadataKey:
    group_id: str
    member_id: str


@message(key=10, versions="0", flexible="0+")
class ShareGroupMemberMetadataValue:
    rack_id: Annotated[str | None, nullable()]
    client_id: str
    client_host: str
    subscribed_topic_names: list[str] = empty()


@message(key=11, versions="0", flexible="none")
class ShareGroupMetadataKey:
    group_id: str


@message(key=11, versions="0", flexible="0+")
class ShareGroupMetadataValue:
    epoch: Int32
    metadata_hash: Int64


@message(key=12, versions="0", flexible="none")
class ShareGroupTargetAssignmentMetadataKey:
    group_id: str


@message(key=12, versions="0", flexible="0+")
class ShareGroupTargetAssignmentMetadataValue:
    assignment_epoch: Int32
    assignment_timestamp: Annotated[Int64, tag(0)] = 0


@message(key=13, versions="0", flexible="none")
class ShareGroupTargetAssignmentMemberKey:
    group_id: str
    member_id: str


@struct
class TopicPartitions:
    topic_id: Uuid
    partitions: list[Int32] = empty()


@message(key=13, versions="0", flexible="0+")
class ShareGroupTargetAssignmentMemberValue:
    topic_partitions: list[TopicPartitions] = empty()


@message(key=14, versions="0", flexible="none")
class ShareGroupCurrentMemberAssignmentKey:
    group_id: str
    member_id: str


@message(key=14, versions="0", flexible="0+")
class ShareGroupCurrentMemberAssignmentValue:
    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[TopicPartitions] = empty()


@message(key=15, versions="0", flexible="none")
class ShareGroupStatePartitionMetadataKey:
    group_id: str


@struct
class TopicPartitionsInfo:
    topic_id: Uuid
    topic_name: str
    partitions: list[Int32] = empty()


@struct
class TopicInfo:
    topic_id: Uuid
    topic_name: str


@message(key=15, versions="0", flexible="0+")
class ShareGroupStatePartitionMetadataValue:
    initializing_topics: list[TopicPartitionsInfo] = empty()
    initialized_topics: list[TopicPartitionsInfo] = empty()
    deleting_topics: list[TopicInfo] = empty()
