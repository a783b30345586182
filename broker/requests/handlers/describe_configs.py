"""DescribeConfigs: the settings of topics, brokers, groups and client metrics, each with where its value comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.config.catalogue import client_metrics_catalogue, group_catalogue
from broker.config.describing import (
    Described,
    describe_broker,
    describe_broker_defaults,
    describe_resource,
    describe_topic,
)
from broker.config.layers import ConfigSource
from broker.config.log_levels import LOGGERS, describe_loggers
from broker.config.topics import topic_defaults
from broker.requests.own_resources import BROKER_LOGGER
from kraft.image.configs import ResourceType
from kraft.topic_names import refusal_of_name
from protocol.errors import ErrorCode
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from broker.network.connection import RequestContext
    from broker.node.node import Broker


class Refusal(NamedTuple):
    error: ErrorCode
    message: str


def handle(broker: Broker, context: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=[_result(broker, request, resource) for resource in request.resources])


def _result(
    broker: Broker, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    described = _describe(broker, resource)
    if isinstance(described, Refusal):
        return DescribeConfigsResult(
            error_code=described.error,
            error_message=described.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
    keys = resource.configuration_keys
    return DescribeConfigsResult(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[_entry(request, each) for each in described if not keys or each.name in keys],
    )


def _entry(request: DescribeConfigsRequest, described: Described) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=described.name,
        value=described.value,
        read_only=described.is_read_only,
        config_source=described.source,
        is_sensitive=described.is_sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=each.name, value=each.value, source=each.source) for each in described.synonyms
        ]
        if request.include_synonyms
        else [],
        config_type=described.type,
        documentation=_documentation(request, described),
    )


def _documentation(request: DescribeConfigsRequest, described: Described) -> str | None:
    if described.source is ConfigSource.DYNAMIC_BROKER_LOGGER:
        return ""
    return described.documentation if request.include_documentation else None


def _describe(broker: Broker, resource: DescribeConfigsResource) -> list[Described] | Refusal:
    name = resource.resource_name
    match resource.resource_type:
        case ResourceType.TOPIC:
            return _topic(broker, name)
        case ResourceType.BROKER:
            return _broker(broker, name)
        case value if value == BROKER_LOGGER:
            return _loggers(broker, name)
        case ResourceType.CLIENT_METRICS:
            if not name:
                return Refusal(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
            overrides = broker.image.configs.of(ResourceType.CLIENT_METRICS, name)
            return describe_resource(client_metrics_catalogue(), overrides, ConfigSource.CLIENT_METRICS)
        case ResourceType.GROUP:
            if not name:
                return Refusal(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
            overrides = broker.image.configs.of(ResourceType.GROUP, name)
            return describe_resource(group_catalogue(), overrides, ConfigSource.GROUP, broker.settings.layers)
    return Refusal(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource.resource_type}")


def _topic(broker: Broker, name: str) -> list[Described] | Refusal:
    invalid = refusal_of_name(name)
    if invalid is not None:
        return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, invalid)
    if broker.image.topics.by_name(name) is None:
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    settings = broker.settings
    return describe_topic(
        topic_defaults(settings.config), settings.layers, broker.image.configs.of(ResourceType.TOPIC, name)
    )


def _broker(broker: Broker, name: str) -> list[Described] | Refusal:
    settings = broker.settings
    if not name:
        return describe_broker_defaults(settings.layers)
    refusal = _other_broker(broker, name, "or empty string, ")
    return refusal or describe_broker(settings.config, settings.layers)


def _loggers(broker: Broker, name: str) -> list[Described] | Refusal:
    if not name:
        return Refusal(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    return _other_broker(broker, name, "") or describe_loggers(LOGGERS)


def _other_broker(broker: Broker, name: str, alternative: str) -> Refusal | None:
    try:
        node_id = int(name)
    except ValueError:
        return Refusal(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    if node_id == broker.node_id:
        return None
    return Refusal(
        ErrorCode.INVALID_REQUEST,
        f"Unexpected broker id, expected {broker.node_id} {alternative}but received {name}",
    )
