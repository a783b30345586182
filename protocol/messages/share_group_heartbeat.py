"""ShareGroupHeartbeat (API 76; KIP-932): a member joins, stays in and leaves a share group."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int16, Int32, Uuid, empty, message, nullable, struct


@message(key=76, versions="1", flexible="0+")
class ShareGroupHeartbeatRequest:
    group_id: str
    member_id: str
    member_epoch: Int32
    rack_id: Annotated[str | None, nullable()] = None
    subscribed_topic_names: Annotated[list[str] | None, nullable()] = None


@struct
class TopicPartitions:
    topic_id: Uuid
    partitions: list[Int32] = empty()


@struct
class Assignment:
    topic_partitions: list[TopicPartitions] = empty()


@message(key=76, versions="1", flexible="0+")
class ShareGroupHeartbeatResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = None
    member_id: Annotated[str | None, nullable()] = None
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: Annotated[Assignment | None, nullable()] = None
