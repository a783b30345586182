"""BrokerHeartbeat (API 63): a broker keeps its registration alive, and reports its metadata offset."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int16, Int32, Int64, Uuid, empty, message, nullable, since, tag


@message(key=63, versions="0-2", flexible="0+")
class BrokerHeartbeatRequest:
    broker_id: Int32
    broker_epoch: Int64 = -1
    current_metadata_offset: Int64
    want_fence: bool
    want_shut_down: bool
    offline_log_dirs: Annotated[list[Uuid], since(1), tag(0)] = empty()
    cordoned_log_dirs: Annotated[list[Uuid] | None, since(2), nullable(2), tag(1)] = None


@message(key=63, versions="0-2", flexible="0+")
class BrokerHeartbeatResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    is_caught_up: bool = False
    is_fenced: bool = True
    should_shut_down: bool
