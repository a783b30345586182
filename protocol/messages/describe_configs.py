"""DescribeConfigs (API 32): read the settings of topics, brokers, loggers and groups."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int8, Int16, Int32, empty, message, nullable, since, struct


@struct
class DescribeConfigsResource:
    resource_type: Int8
    resource_name: str
    configuration_keys: Annotated[list[str] | None, nullable()] = empty()


@message(key=32, versions="1-4", flexible="4+")
class DescribeConfigsRequest:
    resources: list[DescribeConfigsResource] = empty()
    include_synonyms: bool = False
    include_documentation: Annotated[bool, since(3)] = False


@struct
class DescribeConfigsSynonym:
    name: str
    value: Annotated[str | None, nullable()] = ""
    source: Int8


@struct
class DescribeConfigsResourceResult:
    name: str
    value: Annotated[str | None, nullable()] = ""
    read_only: bool
    config_source: Int8 = -1
    is_sensitive: bool
    synonyms: list[DescribeConfigsSynonym] = empty()
    config_type: Annotated[Int8, since(3)] = 0
    documentation: Annotated[str | None, since(3), nullable()] = ""


@struct
class DescribeConfigsResult:
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = ""
    resource_type: Int8
    resource_name: str
    configs: list[DescribeConfigsResourceResult] = empty()


@message(key=32, versions="1-4", flexible="4+")
class DescribeConfigsResponse:
    throttle_time_ms: Int32 = 0
    results: list[DescribeConfigsResult] = empty()
