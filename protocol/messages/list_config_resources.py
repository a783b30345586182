"""ListConfigResources (API 74): the resources that have settings."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int8, Int16, Int32, empty, message, since, struct


@message(key=74, versions="0-1", flexible="0+")
class ListConfigResourcesRequest:
    resource_types: Annotated[list[Int8], since(1)] = empty()


@struct
class ConfigResource:
    resource_name: str
    resource_type: Annotated[Int8, since(1)] = 16


@message(key=74, versions="0-1", flexible="0+")
class ListConfigResourcesResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: list[ConfigResource] = empty()
