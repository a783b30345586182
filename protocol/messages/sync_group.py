"""SyncGroup (API 14): the leader of a classic group sends the assignment, and each member receives its part."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Bytes, Int16, Int32, empty, message, nullable, since, struct


@struct
class SyncGroupRequestAssignment:
    member_id: str
    assignment: Bytes


@message(key=14, versions="0-5", flexible="4+")
class SyncGroupRequest:
    group_id: str
    generation_id: Int32
    member_id: str
    group_instance_id: Annotated[str | None, since(3), nullable(3)] = None
    protocol_type: Annotated[str | None, since(5), nullable(5)] = None
    protocol_name: Annotated[str | None, since(5), nullable(5)] = None
    assignments: list[SyncGroupRequestAssignment] = empty()


@message(key=14, versions="0-5", flexible="4+")
class SyncGroupResponse:
    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0
    protocol_type: Annotated[str | None, since(5), nullable(5)] = None
    protocol_name: Annotated[str | None, since(5), nullable(5)] = None
    assignment: Bytes
