"""ConsumerGroupDescribe (API 69; KIP-848): the epochs, the members and the assignments of consumer groups."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int8, Int16, Int32, Uuid, empty, message, nullable, since, struct


@message(key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeRequest:
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
    instance_id: Annotated[str | None, nullable()] = None
    rack_id: Annotated[str | None, nullable()] = None
    member_epoch: Int32
    client_id: str
    client_host: str
    subscribed_topic_names: list[str] = empty()
    subscribed_topic_regex: Annotated[str | None, nullable()] = None
    assignment: Assignment
    target_assignment: Assignment
    member_type: Annotated[Int8, since(1)] = -1


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


@message(key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeResponse:
    throttle_time_ms: Int32 = 0
    groups: list[DescribedGroup] = empty()
