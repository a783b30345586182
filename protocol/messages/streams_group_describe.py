"""StreamsGroupDescribe (API 89; KIP-1071): the epochs, the topology, the members and the tasks of Streams groups."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int8, Int16, Int32, Int64, UInt16, empty, message, nullable, since, struct


@message(key=89, versions="0-1", flexible="0+")
class StreamsGroupDescribeRequest:
    group_ids: list[str] = empty()
    include_authorized_operations: bool
    include_topology_description: Annotated[bool, since(1)] = False


@struct
class KeyValue:
    key: str
    value: str


@struct
class TopicInfo:
    name: str
    partitions: Int32
    replication_factor: Int16
    topic_configs: list[KeyValue] = empty()


@struct
class Subtopology:
    subtopology_id: str
    source_topics: list[str] = empty()
    repartition_sink_topics: list[str] = empty()
    state_changelog_topics: list[TopicInfo] = empty()
    repartition_source_topics: list[TopicInfo] = empty()


@struct
class Topology:
    epoch: Int32
    subtopologies: Annotated[list[Subtopology] | None, nullable()] = None


@struct
class Endpoint:
    host: str
    port: UInt16


@struct
class TaskOffset:
    subtopology_id: str
    partition: Int32
    offset: Int64


@struct
class TaskIds:
    subtopology_id: str
    partitions: list[Int32] = empty()


@struct
class Assignment:
    active_tasks: list[TaskIds] = empty()
    standby_tasks: list[TaskIds] = empty()
    warmup_tasks: list[TaskIds] = empty()


@struct
class Member:
    member_id: str
    member_epoch: Int32
    instance_id: Annotated[str | None, nullable()] = None
    rack_id: Annotated[str | None, nullable()] = None
    client_id: str
    client_host: str
    topology_epoch: Int32
    process_id: str
    user_endpoint: Annotated[Endpoint | None, nullable()] = None
    client_tags: list[KeyValue] = empty()
    task_offsets: list[TaskOffset] = empty()
    task_end_offsets: list[TaskOffset] = empty()
    assignment: Assignment
    target_assignment: Assignment
    is_classic: bool


@struct
class TopologyDescriptionNode:
    name: str
    node_type: Int8
    source_topics: list[str] = empty()
    sink_topic: Annotated[str | None, nullable()] = None
    stores: list[str] = empty()
    successors: list[str] = empty()


@struct
class TopologyDescriptionSubtopology:
    subtopology_id: str
    nodes: list[TopologyDescriptionNode] = empty()


@struct
class TopologyDescriptionGlobalStore:
    source: TopologyDescriptionNode
    processor: TopologyDescriptionNode


@struct
class TopologyDescription:
    subtopologies: list[TopologyDescriptionSubtopology] = empty()
    global_stores: list[TopologyDescriptionGlobalStore] = empty()


@struct
class DescribedGroup:
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = None
    group_id: str
    group_state: str
    group_epoch: Int32
    assignment_epoch: Int32
    topology: Annotated[Topology | None, nullable()] = None
    members: list[Member] = empty()
    authorized_operations: Int32 = -2147483648
    topology_description: Annotated[TopologyDescription | None, since(1), nullable(1)] = None
    topology_description_status: Annotated[Int8, since(1)] = 0
    assignor_name: Annotated[str | None, since(1), nullable(1)] = None


@message(key=89, versions="0-1", flexible="0+")
class StreamsGroupDescribeResponse:
    throttle_time_ms: Int32 = 0
    groups: list[DescribedGroup] = empty()
