"""Heartbeat (API 12): keep a member of a classic group in its group."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int16, Int32, message, nullable, since


@message(key=12, versions="0-4", flexible="4+")
class HeartbeatRequest:
    group_id: str
    generation_id: Int32
    member_id: str
    group_instance_id: Annotated[str | None, since(3), nullable(3)] = None


@message(key=12, versions="0-4", flexible="4+")
class HeartbeatResponse:
    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0
