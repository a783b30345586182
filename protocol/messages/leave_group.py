"""LeaveGroup (API 13): remove members from a classic group."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int16, Int32, empty, message, nullable, since, struct, until


@struct
class MemberIdentity:
    member_id: str
    group_instance_id: Annotated[str | None, nullable(3)] = None
    reason: Annotated[str | None, since(5), nullable(5)] = None


@message(key=13, versions="0-5", flexible="4+")
class LeaveGroupRequest:
    group_id: str
    member_id: Annotated[str, until(2)] = ""
    members: Annotated[list[MemberIdentity], since(3)] = empty()


@struct
class MemberResponse:
    member_id: str
    group_instance_id: Annotated[str | None, nullable(3)] = ""
    error_code: Int16 = 0


@message(key=13, versions="0-5", flexible="4+")
class LeaveGroupResponse:
    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0
    members: Annotated[list[MemberResponse], since(3)] = empty()
