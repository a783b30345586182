"""DescribeGroups (API 15): the state and the members of classic groups."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Bytes, Int16, Int32, empty, message, nullable, since, struct


@message(key=15, versions="0-6", flexible="5+")
class DescribeGroupsRequest:
    groups: list[str] = empty()
    include_authorized_operations: Annotated[bool, since(3)] = False


@struct
class DescribedGroupMember:
    member_id: str
    group_instance_id: Annotated[str | None, since(4), nullable(4)] = None
    client_id: str
    client_host: str
    member_metadata: Bytes
    member_assignment: Bytes


@struct
class DescribedGroup:
    error_code: Int16 = 0
    error_message: Annotated[str | None, since(6), nullable(6)] = None
    group_id: str
    group_state: str
    protocol_type: str
    protocol_data: str
    members: list[DescribedGroupMember] = empty()
    authorized_operations: Annotated[Int32, since(3)] = -2147483648


@message(key=15, versions="0-6", flexible="5+")
class DescribeGroupsResponse:
    throttle_time_ms: Annotated[Int32, since(1)] = 0
    groups: list[DescribedGroup] = empty()
