"""ControllerRegistration (API 70): a controller registers with the active controller."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int16, Int32, UInt16, Uuid, empty, message, nullable, struct


@struct
class Listener:
    name: str
    host: str
    port: UInt16
    security_protocol: Int16


@struct
class Feature:
    name: str
    min_supported_version: Int16
    max_supported_version: Int16


@message(key=70, versions="0", flexible="0+")
class ControllerRegistrationRequest:
    controller_id: Int32
    incarnation_id: Uuid
    zk_migration_ready: bool
    listeners: list[Listener] = empty()
    features: list[Feature] = empty()


@message(key=70, versions="0", flexible="0+")
class ControllerRegistrationResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = ""
