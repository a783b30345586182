"""JoinGroup (API 11): join a classic group, or its next generation."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Bytes, Int16, Int32, empty, message, nullable, since, struct


@struct
class JoinGroupRequestProtocol:
    name: str
    metadata: Bytes


@message(key=11, versions="0-9", flexible="6+")
class JoinGroupRequest:
    group_id: str
    session_timeout_ms: Int32
    rebalance_timeout_ms: Annotated[Int32, since(1)] = -1
    member_id: str
    group_instance_id: Annotated[str | None, since(5), nullable(5)] = None
    protocol_type: str
    protocols: list[JoinGroupRequestProtocol] = empty()
    reason: Annotated[str | None, since(8), nullable(8)] = None


@struct
class JoinGroupResponseMember:
    member_id: str
    group_instance_id: Annotated[str | None, since(5), nullable(5)] = None
    metadata: Bytes


@message(key=11, versions="0-9", flexible="6+")
class JoinGroupResponse:
    throttle_time_ms: Annotated[Int32, since(2)] = 0
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: Annotated[str | None, since(7), nullable(7)] = None
    protocol_name: Annotated[str | None, nullable(7)] = ""
    leader: str
    skip_assignment: Annotated[bool, since(9)] = False
    member_id: str
    members: list[JoinGroupResponseMember] = empty()
