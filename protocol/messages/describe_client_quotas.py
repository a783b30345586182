"""DescribeClientQuotas (API 48): read the quotas of users, client ids and addresses (KIP-546)."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Float64, Int8, Int16, Int32, empty, message, nullable, struct


@struct
class ComponentData:
    entity_type: str
    match_type: Int8
    match: Annotated[str | None, nullable()]


@message(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest:
    components: list[ComponentData] = empty()
    strict: bool


@struct
class EntityData:
    entity_type: str
    entity_name: Annotated[str | None, nullable()]


@struct
class ValueData:
    key: str
    value: Float64


@struct
class EntryData:
    entity: list[EntityData] = empty()
    values: list[ValueData] = empty()


@message(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = ""
    entries: Annotated[list[EntryData] | None, nullable()] = empty()
