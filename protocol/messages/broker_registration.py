"""BrokerRegistration (API 62): a broker registers with the controller."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int16, Int32, Int64, UInt16, Uuid, empty, message, nullable, since, struct


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


@message(key=62, versions="0-4", flexible="0+")
class BrokerRegistrationRequest:
    broker_id: Int32
    cluster_id: str
    incarnation_id: Uuid
    listeners: list[Listener] = empty()
    features: list[Feature] = empty()
    rack: Annotated[str | None, nullable()] = ""
    is_migrating_zk_broker: Annotated[bool, since(1)] = False
    log_dirs: Annotated[list[Uuid], since(2)] = empty()
    previous_broker_epoch: Annotated[Int64, since(3)] = -1


@message(key=62, versions="0-4", flexible="0+")
class BrokerRegistrationResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    broker_epoch: Int64 = -1
