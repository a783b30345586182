"""IncrementalAlterConfigs (API 44): change single dynamic settings of a resource."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int8, Int16, Int32, empty, message, nullable, struct


@struct
class AlterableConfig:
    name: str
    config_operation: Int8
    value: Annotated[str | None, nullable()] = ""


@struct
class AlterConfigsResource:
    resource_type: Int8
    resource_name: str
    configs: list[AlterableConfig] = empty()


@message(key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsRequest:
    resources: list[AlterConfigsResource] = empty()
    validate_only: bool


@struct
class AlterConfigsResourceResponse:
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = ""
    resource_type: Int8
    resource_name: str


@message(key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsResponse:
    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse] = empty()
