"""The records of `__consumer_offsets` that Streams groups write (KIP-1071). The `key` of each declaration is the record
type."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int8, Int16, Int32, Int64, UInt16, empty, message, nullable, struct, tag


@message(key=17, versions="0", flexible="none")
class StreamsGroupMetadataKey:
    group_id: str


@struct
class LastAssignmentConfig:
    key: str
    value: str


@message(key=17, versions="0", flexible="0+")
class StreamsGroupMetadataValue:
    epoch: Int32
    metadata_hash: Int64
    validated_topology_epoch: Annotated[Int32, tag(0)] = -1
    last_assignment_configs: Annotated[list[LastAssignmentConfig] | None, nullable(), tag(1)] = empty()
    stored_description_topology_epoch: Annotated[Int32, tag(2)] = -1
    failed_description_topology_epoch: Annotated[Int32, tag(3)] = -1


@message(key=19, versions="0", flexible="none")
class StreamsGroupMemberMetadataKey:
    group_id: str
    member_id: str


@struct
class Endpoint:
    host: str
    port: UInt16


@struct
class KeyValue:
    key: str
    value: str


@message(key=19, versions="0", flexible="0+")
class StreamsGroupMemberMetadataValue:
    instance_id: Annotated[str | None, nullable()]
    rack_id: Annotated[str | None, nullable()]
    client_id: str
    client_host: str
    rebalance_timeout_ms: Int32 = -1
    topology_epoch: Int32
    process_id: str
    user_endpoint: Annotated[Endpoint | None, nullable()] = None
    client_tags: list[KeyValue] = empty()


@message(key=20, versions="0", flexible="none")
class StreamsGroupTargetAssignmentMetadataKey:
    group_id: str


@message(key=20, versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMetadataValue:
    assignment_epoch: Int32
    assignment_timestamp: Annotated[Int64, tag(0)] = 0


@message(key=21, versions="0", flexible="none")
class StreamsGroupTargetAssignmentMemberKey:
    group_id: str
    member_id: str


@struct
class TargetTaskIds:
    subtopology_id: str
    partitions: list[Int32] = empty()


@message(key=21, versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMemberValue:
    active_tasks: list[TargetTaskIds] = empty()
    standby_tasks: list[TargetTaskIds] = empty()
    warmup_tasks: list[TargetTaskIds] = empty()


@message(key=22, versions="0", flexible="none")
class StreamsGroupCurrentMemberAssignmentKey:
    group_id: str
    member_id: str


@struct
class TaskIds:
    subtopology_id: str
    partitions: list[Int32] = empty()
    assignment_epochs: Annotated[list[Int32] | None, nullable(), tag(0)] = empty()


@message(key=22, versions="0", flexible="0+")
class StreamsGroupCurrentMemberAssignmentValue:
    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    active_tasks: list[TaskIds] = empty()
    standby_tasks: list[TaskIds] = empty()
    warmup_tasks: list[TaskIds] = empty()
    active_tasks_pending_revocation: list[TaskIds] = empty()
    standby_tasks_pending_revocation: list[TaskIds] = empty()
    warmup_tasks_pending_revocation: list[TaskIds] = empty()


@message(key=23, versions="0", flexible="none")
class StreamsGroupTopologyKey:
    group_id: str


@struct
class TopicConfig:
    key: str
    value: str


@struct
class TopicInfo:
    name: str
    partitions: Int32
    replication_factor: Int16
    topic_configs: list[TopicConfig] = empty()


@struct
class CopartitionGroup:
    source_topics: list[Int16] = empty()
    source_topic_regex: list[Int16] = empty()
    repartition_source_topics: list[Int16] = empty()


@struct
class Subtopology:
    subtopology_id: str
    source_topics: list[str] = empty()
    source_topic_regex: list[str] = empty()
    state_changelog_topics: list[TopicInfo] = empty()
    repartition_sink_topics: list[str] = empty()
    repartition_source_topics: list[TopicInfo] = empty()
    copartition_groups: list[CopartitionGroup] = empty()


@message(key=23, versions="0", flexible="0+")
class StreamsGroupTopologyValue:
    epoch: Int32
    subtopologies: list[Subtopology] = empty()
