"""FindCoordinator (API 10): the broker that coordinates a group or a transactional id."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int8, Int16, Int32, empty, message, nullable, since, struct, until


@message(key=10, versions="0-6", flexible="3+")
class FindCoordinatorRequest:
    key: Annotated[str, until(3)] = ""
    key_type: Annotated[Int8, since(1)] = 0
    coordinator_keys: Annotated[list[str], since(4)] = empty()


@struct
class Coordinator:
    key: str
    node_id: Int32
    host: str
    port: Int32
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable(4)] = ""


@message(key=10, versions="0-6", flexible="3+")
class FindCoordinatorResponse:
    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Annotated[Int16, until(3)] = 0
    error_message: Annotated[str | None, since(1), until(3), nullable(1)] = ""
    node_id: Annotated[Int32, until(3)] = 0
    host: Annotated[str, until(3)] = ""
    port: Annotated[Int32, until(3)] = 0
    coordinators: Annotated[list[Coordinator], since(4)] = empty()
