"""StreamsGroupHeartbeat (API 88; KIP-1071): a member joins, stays in and leaves a Streams group."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int8, Int16, Int32, Int64, UInt16, empty, message, nullable, since, struct, until


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


@struct
class Topology:
    epoch: Int32
    subtopologies: list[Subtopology] = empty()


@struct
class TaskIds:
    subtopology_id: str
    partitions: list[Int32] = empty()


@struct
class Endpoint:
    host: str
    port: UInt16


@struct
class TaskOffset:
    subtopology_id: str
    partition: Int32
    offset: Int64


@message(key=88, versions="0-1", flexible="0+")
class StreamsGroupHeartbeatRequest:
    group_id: str
    member_id: str
    member_epoch: Int32
    endpoint_information_epoch: Int32
    instance_id: Annotated[str | None, nullable()] = None
    rack_id: Annotated[str | None, nullable()] = None
    rebalance_timeout_ms: Int32 = -1
    topology: Annotated[Topology | None, nullable()] = None
    active_tasks: Annotated[list[TaskIds] | None, nullable()] = None
    standby_tasks: Annotated[list[TaskIds] | None, nullable()] = None
    warmup_tasks: Annotated[list[TaskIds] | None, nullable()] = None
    process_id: Annotated[str | None, nullable()] = None
    user_endpoint: Annotated[Endpoint | None, nullable()] = None
    client_tags: Annotated[list[KeyValue] | None, nullable()] = None
    task_offsets: Annotated[list[TaskOffset] | None, nullable()] = None
    task_end_offsets: Annotated[list[TaskOffset] | None, nullable()] = None
    shutdown_application: bool


@struct
class Status:
    status_code: Int8
    status_detail: str


@struct
class TopicPartition:
    topic: str
    partitions: list[Int32] = empty()


@struct
class EndpointToPartitions:
    user_endpoint: Endpoint
    active_partitions: list[TopicPartition] = empty()
    standby_partitions: list[TopicPartition] = empty()


@message(key=88, versions="0-1", flexible="0+")
class StreamsGroupHeartbeatResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = None
    member_id: str
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    acceptable_recovery_lag_legacy: Annotated[Int32, until(0)] = 0
    task_offset_interval_ms: Int32
    acceptable_recovery_lag: Annotated[Int64, since(1)] = -1
    status: Annotated[list[Status] | None, nullable()] = empty()
    active_tasks: Annotated[list[TaskIds] | None, nullable()] = None
    standby_tasks: Annotated[list[TaskIds] | None, nullable()] = None
    warmup_tasks: Annotated[list[TaskIds] | None, nullable()] = None
    topology_description_required: Annotated[bool, since(1)] = False
    endpoint_information_epoch: Int32
    partitions_by_user_endpoint: Annotated[list[EndpointToPartitions] | None, nullable()] = None
