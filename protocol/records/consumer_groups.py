"""The records of `__consumer_offsets` that consumer groups write (KIP-848). The `key` of each declaration is the record
type."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Bytes, Int8, Int32, Int64, Uuid, empty, message, nullable, struct, tag


@message(key=3, versions="0", flexible="none")
class ConsumerGroupMetadataKey:
    group_id: str


@message(key=3, versions="0", flexible="0+")
class ConsumerGroupMetadataValue:
    epoch: Int32
    metadata_hash: Annotated[Int64, tag(0)] = 0


@message(key=4, versions="0", flexible="none")
class ConsumerGroupPartitionMetadataKey:
    group_id: str


@struct
class PartitionMetadata:
    partition: Int32
    racks: list[str] = empty()


@struct
class TopicMetadata:
    topic_id: Uuid
    topic_name: str
    num_partitions: Int32
    partition_metadata: list[PartitionMetadata] = empty()


@message(key=4, versions="0", flexible="0+")
class ConsumerGroupPartitionMetadataValue:
    topics: list[TopicMetadata] = empty()


@message(key=5, versions="0", flexible="none")
class ConsumerGroupMemberMetadataKey:
    group_id: str
    member_id: str


@struct
class ClassicProtocol:
    name: str
    metadata: Bytes


@struct
class ClassicMemberMetadata:
    session_timeout_ms: Int32
    supported_protocols: list[ClassicProtocol] = empty()


@message(key=5, versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue:
    instance_id: Annotated[str | None, nullable()]
    rack_id: Annotated[str | None, nullable()]
    client_id: str
    client_host: str
    subscribed_topic_names: list[str] = empty()
    subscribed_topic_regex: Annotated[str | None, nullable()]
    rebalance_timeout_ms: Int32 = -1
    server_assignor: Annotated[str | None, nullable()]
    classic_member_metadata: Annotated[ClassicMemberMetadata | None, nullable(), tag(0)] = None


@message(key=6, versions="0", flexible="none")
class ConsumerGroupTargetAssignmentMetadataKey:
    group_id: str


@message(key=6, versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue:
    assignment_epoch: Int32
    assignment_timestamp: Annotated[Int64, tag(0)] = 0


@message(key=7, versions="0", flexible="none")
class ConsumerGroupTargetAssignmentMemberKey:
    group_id: str
    member_id: str


@struct
class TargetTopicPartitions:
    topic_id: Uuid
    partitions: list[Int32] = empty()


@message(key=7, versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue:
    topic_partitions: list[TargetTopicPartitions] = empty()


@message(key=8, versions="0", flexible="none")
class ConsumerGroupCurrentMemberAssignmentKey:
    group_id: str
    member_id: str


@struct
class TopicPartitions:
    topic_id: Uuid
    partitions: list[Int32] = empty()
    assignment_epochs: Annotated[list[Int32] | None, nullable(), tag(0)] = empty()


@message(key=8, versions="0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue:
    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[TopicPartitions] = empty()
    partitions_pending_revocation: list[TopicPartitions] = empty()


@message(key=16, versions="0", flexible="none")
class ConsumerGroupRegularExpressionKey:
    group_id: str
    regular_expression: str


@message(key=16, versions="0", flexible="0+")
class ConsumerGroupRegularExpressionValue:
    topics: list[str] = empty()
    version: Int64
    timestamp: Int64
