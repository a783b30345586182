"""ShareGroupDescribe (API 77; KIP-932): the epochs, the members and the assignments of share groups."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int16, Int32, Uuid, empty, message, nullable, struct


@message(key=77, versions="1", flexible="0+")
class ShareGroupDescribeRequest:
    group_ids: list[str] = empty()
    include_authorized_operations: bool


@struct
class TopicPartitions:
    topic_id: Uuid
    topic_name: str
    partitions: list[Int32] = empty()


@struct
class Assignment:
    topic_partitions: list[TopicPartitions] = empty()


@struct
class Member:
    member_id: str
    rack_id: Annotated[str | None, nullable()] = None
    member_epoch: Int32
    client_id: str
    client_host: str
    subscribed_topic_names: list[str] = empty()
    assignment: Assignment


@struct
class DescribedGroup:
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = None
    group_id: str
    group_state: str
    group_epoch: Int32
    assignment_epoch: Int32
    assignor_name: str
    members: list[Member] = empty()
    authorized_operations: Int32 = -2147483648


@message(key=77, versions="1", flexible="0+")
class ShareGroupDescribeResponse:
    throttle_time_ms: Int32 = 0
    groups: list[DescribedGroup] = empty()
