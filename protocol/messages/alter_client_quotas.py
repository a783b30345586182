"""AlterClientQuotas (API 49): set or remove the quotas of users, client ids and addresses (KIP-546)."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Float64, Int16, Int32, empty, message, nullable, struct


@struct
class EntityData:
    entity_type: str
    entity_name: Annotated[str | None, nullable()]


@struct
class OpData:
    key: str
    value: Float64
    remove: bool


@struct
class RequestEntryData:
    entity: list[EntityData] = empty()
    ops: list[OpData] = empty()


@message(key=49, versions="0-1", flexible="1+")
class AlterClientQuotasRequest:
    entries: list[RequestEntryData] = empty()
    validate_only: bool


@struct
class ResponseEntryData:
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = ""
    entity: list[EntityData] = empty()


@message(key=49, versions="0-1", flexible="1+")
class AlterClientQuotasResponse:
    throttle_time_ms: Int32 = 0
    entries: list[ResponseEntryData] = empty()
