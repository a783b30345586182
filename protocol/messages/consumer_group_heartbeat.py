"""ConsumerGroupHeartbeat (API 68; KIP-848): a member joins, stays in and leaves a consumer group."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int16, Int32, Uuid, empty, message, nullable, since, struct


@struct
class TopicPartitions:
    topic_id: Uuid
    partitions: list[Int32] = empty()


@message(key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest:
    group_id: str
    member_id: str
    member_epoch: Int32
    instance_id: Annotated[str | None, nullable()] = None
    rack_id: Annotated[str | None, nullable()] = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: Annotated[list[str] | None, nullable()] = None
    subscribed_topic_regex: Annotated[str | None, since(1), nullable(1)] = None
    server_assignor: Annotated[str | None, nullable()] = None
    topic_partitions: Annotated[list[TopicPartitions] | None, nullable()] = None


@struct
class Assignment:
    topic_partitions: list[TopicPartitions] = empty()


@message(key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = None
    member_id: Annotated[str | None, nullable()] = None
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: Annotated[Assignment | None, nullable()] = None
