"""DescribeConfigs (API key 32, versions 1-4; KIP-133, KIP-226, KIP-412, KIP-569): settings and their sources.

The resources are topics, brokers, a broker's loggers, groups and client metrics. Version 1 adds synonyms, version 3
documentation.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from moldau.broker.apis.api import Api
from moldau.broker.apis.lists import one_pass
from moldau.broker.apis.needs import elements_rule
from moldau.broker.apis.own_resources import BROKER_LOGGER, need_of_settings
from moldau.broker.apis.parts import cut
from moldau.broker.config.catalogue import client_metrics_catalogue, group_catalogue
from moldau.broker.config.describing import (
    ConfigEntry,
    describe_broker,
    describe_broker_defaults,
    describe_resource,
    describe_topic,
)
from moldau.broker.config.layers import ConfigSource
from moldau.broker.config.log_levels import LOGGERS, describe_loggers
from moldau.broker.config.topics import topic_defaults
from moldau.kraft.image.configs import ResourceType
from moldau.kraft.topic_names import refusal_of_name
from moldau.protocol.errors import ERROR_TEXTS, ErrorCode
from moldau.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from moldau.security.access import AclOperation

if TYPE_CHECKING:
    from moldau.broker.apis.services import Services
    from moldau.broker.network.route import RequestContext


RECEIPT_PREFIX: Final = "moldau.erase."
"""Settings of a topic that begin so are the receipts of erase orders."""


class NotDescribed(NamedTuple):
    error: ErrorCode
    message: str


def handle(services: Services, context: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    results = [_result(services, context, request, resource) for resource in request.resources]
    return DescribeConfigsResponse(results=results)


def _result(
    services: Services, context: RequestContext, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    described = _describe(services, context, resource)
    if isinstance(described, NotDescribed):
        return DescribeConfigsResult(
            error_code=described.error,
            error_message=described.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
    keys = frozenset(resource.configuration_keys or ())
    return DescribeConfigsResult(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[_entry(request, each) for each in described if not keys or each.name in keys],
    )


def _entry(request: DescribeConfigsRequest, described: ConfigEntry) -> DescribeConfigsResourceResult:
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


def _documentation(request: DescribeConfigsRequest, described: ConfigEntry) -> str | None:
    if described.source is ConfigSource.DYNAMIC_BROKER_LOGGER:
        return ""
    return described.documentation if request.include_documentation else None


def _describe(
    services: Services, context: RequestContext, resource: DescribeConfigsResource
) -> list[ConfigEntry] | NotDescribed:
    name = resource.resource_name
    match resource.resource_type:
        case ResourceType.TOPIC:
            return _topic(services, resource)
        case ResourceType.BROKER:
            return _broker(services, name)
        case value if value == BROKER_LOGGER:
            return _loggers(services, name)
        case ResourceType.CLIENT_METRICS:
            if not name:
                return NotDescribed(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
            overrides = services.cluster.image.configs.of(ResourceType.CLIENT_METRICS, name)
            return describe_resource(client_metrics_catalogue(), overrides, ConfigSource.CLIENT_METRICS)
        case ResourceType.GROUP:
            if not name:
                return NotDescribed(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
            return _group(services, context, resource)
    return NotDescribed(ErrorCode.INVALID_REQUEST, ERROR_TEXTS[ErrorCode.INVALID_REQUEST])


def _group(
    services: Services, context: RequestContext, resource: DescribeConfigsResource
) -> list[ConfigEntry] | NotDescribed:
    name = resource.resource_name
    overrides = services.cluster.image.configs.of(ResourceType.GROUP, name)
    entries = describe_resource(group_catalogue(), overrides, ConfigSource.GROUP, services.settings.layers)
    if resource.configuration_keys:
        from moldau.broker.apis.groups.group_history import remembered

        told = remembered(services, context, name, resource.configuration_keys)
        if isinstance(told, ErrorCode):
            return NotDescribed(told, f"this is told by the coordinator of the group: {told.name}")
        entries += told
    return entries


def _topic(services: Services, resource: DescribeConfigsResource) -> list[ConfigEntry] | NotDescribed:
    name = resource.resource_name
    invalid = refusal_of_name(name)
    if invalid is not None:
        return NotDescribed(ErrorCode.INVALID_TOPIC_EXCEPTION, invalid)
    if services.cluster.image.topics.by_name(name) is None:
        return NotDescribed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
    settings = services.settings
    entries = describe_topic(
        topic_defaults(settings.config), settings.layers, services.cluster.image.configs.of(ResourceType.TOPIC, name)
    )
    named = [each for each in resource.configuration_keys or () if each.startswith(RECEIPT_PREFIX)]
    if named:
        from moldau.broker.apis.records.erase_receipts import receipt_entries

        entries += receipt_entries(services, name, named)
    return entries


def _broker(services: Services, name: str) -> list[ConfigEntry] | NotDescribed:
    settings = services.settings
    if not name:
        return describe_broker_defaults(settings.layers)
    refusal = _other_broker(services, name, "or empty string, ")
    return refusal or describe_broker(settings.config, settings.layers)


def _loggers(services: Services, name: str) -> list[ConfigEntry] | NotDescribed:
    if not name:
        return NotDescribed(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    return _other_broker(services, name, "") or describe_loggers(LOGGERS)


def _other_broker(services: Services, name: str, alternative: str) -> NotDescribed | None:
    try:
        node_id = int(name)
    except ValueError:
        return NotDescribed(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    if node_id == services.node_id:
        return None
    return NotDescribed(
        ErrorCode.INVALID_REQUEST,
        f"Unexpected broker id, expected {services.node_id} {alternative}but received {name}",
    )


API: Final = Api(
    DescribeConfigsRequest,
    broker=handle,
    controller=handle,
    needs=elements_rule("resources", "results", partial(need_of_settings, AclOperation.DESCRIBE_CONFIGS)),
    lists=[
        cut("resources", "results", size=2, is_distinct=True),
        one_pass("the names become a set", "resources.configuration_keys"),
    ],
)
