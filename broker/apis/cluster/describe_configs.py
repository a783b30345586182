"""DescribeConfigs (API key 32, versions 1-4; KIP-133, KIP-226, KIP-412, KIP-569): settings and their sources.

1: synonyms (KIP-226) · 3: types and documentation (KIP-569). The resources are topics, brokers, a broker's loggers,
groups and client metrics.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import partial
from typing import Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.cluster.alter_configs import BROKER_LOGGER, need_of_settings, problem_of_node
from moldau.broker.apis.lists import one_pass
from moldau.broker.apis.needs import elements_rule, on_group
from moldau.broker.apis.parts import Answering, in_parts
from moldau.broker.apis.services import Services
from moldau.broker.config.catalogue import client_metrics_catalogue, group_catalogue
from moldau.broker.config.describing import (
    ConfigEntry,
    describe_broker,
    describe_broker_defaults,
    describe_resource,
    describe_topic,
    information_entry,
)
from moldau.broker.config.layers import ConfigSource
from moldau.broker.config.log_levels import LOGGERS, describe_loggers
from moldau.broker.coordinators.group_history import reported_history
from moldau.broker.coordinators.lag_history import LAG_SETTING
from moldau.broker.coordinators.node_status import STATUS_MEANS, STATUS_SETTING
from moldau.broker.network.route import RequestContext
from moldau.broker.reasons.facts import GROUP_HISTORY_SETTING
from moldau.kraft.controller.decision import ApiError
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
from moldau.security.access import AclOperation, ResourceKind

RECEIPT_PREFIX: Final = "moldau.erase."
"""The prefix of a topic's settings whose values are the receipts of erase orders."""
REMEMBERED: Final = {
    GROUP_HISTORY_SETTING: (
        "What happened to the group, as its coordinator remembers it: JSON, for `moldau group explain`."
    ),
    LAG_SETTING: "Records that the group had not read, a point each minute of the last hour: JSON, for the console.",
}
"""Settings of a group that its coordinator has in memory, with descriptions. The lag needs DESCRIBE on all topics."""


def handle(services: Services, context: RequestContext, request: DescribeConfigsRequest) -> object:
    return services.long_requests.answer(context, _described(services, context, request))


def _described(services: Services, context: RequestContext, request: DescribeConfigsRequest) -> Answering:
    """Describe the settings of each resource. Yields for each setting, because a broker has hundreds."""
    response = DescribeConfigsResponse()
    for resource in request.resources:
        result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
        response.results.append(result)
        described = _describe(services, context, resource)
        if isinstance(described, ApiError):
            result.error_code, result.error_message = described
            continue
        keys = frozenset(resource.configuration_keys or ())
        for each in described:
            yield
            if not keys or each.name in keys:
                result.configs.append(_entry(request, each))
    return response


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
        documentation=""
        if described.source is ConfigSource.DYNAMIC_BROKER_LOGGER
        else described.documentation
        if request.include_documentation
        else None,
    )


def _describe(
    services: Services, context: RequestContext, resource: DescribeConfigsResource
) -> Iterable[ConfigEntry] | ApiError:
    name = resource.resource_name
    match resource.resource_type:
        case ResourceType.TOPIC:
            return _topic(services, resource)
        case ResourceType.BROKER:
            return _broker(services, context, resource)
        case value if value == BROKER_LOGGER:
            return _loggers(services, name)
        case ResourceType.CLIENT_METRICS:
            if not name:
                return ApiError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
            overrides = services.cluster.image.configs.settings_of(ResourceType.CLIENT_METRICS, name)
            return describe_resource(client_metrics_catalogue(), overrides, ConfigSource.CLIENT_METRICS)
        case ResourceType.GROUP:
            if not name:
                return ApiError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
            return _group(services, context, resource)
    # DIVERGES: for one resource of an unknown type Apache Kafka refuses the whole request.
    return ApiError(ErrorCode.INVALID_REQUEST, ERROR_TEXTS[ErrorCode.INVALID_REQUEST])


def _group(
    services: Services, context: RequestContext, resource: DescribeConfigsResource
) -> list[ConfigEntry] | ApiError:
    name = resource.resource_name
    overrides = services.cluster.image.configs.settings_of(ResourceType.GROUP, name)
    entries = describe_resource(group_catalogue(), overrides, ConfigSource.GROUP, services.settings.layers)
    if resource.configuration_keys:
        told = _remembered(services, context, name, resource.configuration_keys)
        if isinstance(told, ErrorCode):
            return ApiError(told, f"this is told by the coordinator of the group: {told.name}")
        entries += told
    return entries


def _remembered(
    services: Services, context: RequestContext, group_id: str, names: Iterable[str]
) -> list[ConfigEntry] | ErrorCode:
    """The settings of a group in `REMEMBERED` that the request names. An error if the client may not describe the
    group, or if this broker is not its coordinator.

    DIVERGES: Apache Kafka has no such settings. They are given only to a request that names them, so that no tool shows
    them that does not ask; no API key is added, so that clients of any kind go on as before. The request goes to the
    coordinator of the group, as OffsetFetch does."""
    wanted = [name for name in REMEMBERED if name in names]
    if not wanted:
        return []
    if not on_group(AclOperation.DESCRIBE, group_id).is_met(context.access):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    runner = services.groups.runner_of(group_id)
    if isinstance(runner, ErrorCode):
        return runner
    values = {}
    if GROUP_HISTORY_SETTING in wanted:
        values[GROUP_HISTORY_SETTING] = reported_history(
            services.environment, runner.shard, group_id, context.access
        ).to_json()
    if LAG_SETTING in wanted and context.access.decision_for_all(AclOperation.DESCRIBE, ResourceKind.TOPIC):
        values[LAG_SETTING] = json.dumps(services.lag_history.points_of(group_id))
    return [information_entry(name, value, REMEMBERED[name]) for name, value in values.items()]


def _topic(services: Services, resource: DescribeConfigsResource) -> list[ConfigEntry] | ApiError:
    name = resource.resource_name
    invalid = refusal_of_name(name)
    if invalid is not None:
        return ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, invalid)
    if services.cluster.image.topics.by_name(name) is None:
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
    overrides = services.cluster.image.configs.settings_of(ResourceType.TOPIC, name)
    entries = describe_topic(services.settings.topic_entries, overrides)
    named = [each for each in resource.configuration_keys or () if each.startswith(RECEIPT_PREFIX)]
    if named:
        from moldau.broker.apis.records.erasure import receipt_entries

        entries += receipt_entries(services, name, named)
    return entries


def _broker(
    services: Services, context: RequestContext, resource: DescribeConfigsResource
) -> Iterable[ConfigEntry] | ApiError:
    settings = services.settings
    if not resource.resource_name:
        return describe_broker_defaults(settings.layers)
    refusal = _other_broker(services, resource.resource_name, "or empty string, ")
    if refusal is not None:
        return refusal
    entries = describe_broker(settings.config, settings.layers)
    if STATUS_SETTING not in (resource.configuration_keys or ()):
        return entries
    return (*entries, information_entry(STATUS_SETTING, services.node_status.told_to(context.access), STATUS_MEANS))


def _loggers(services: Services, name: str) -> list[ConfigEntry] | ApiError:
    if not name:
        return ApiError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    return _other_broker(services, name, "") or describe_loggers(LOGGERS)


def _other_broker(services: Services, name: str, alternative: str) -> ApiError | None:
    other = f"Unexpected broker id, expected {services.node_id} {alternative}but received {name}"
    problem = problem_of_node(name, services.node_id, other, "Broker")
    return None if problem is None else ApiError(ErrorCode.INVALID_REQUEST, problem)


API: Final = Api(
    DescribeConfigsRequest,
    broker=handle,
    controller=handle,
    needs=elements_rule("resources", "results", partial(need_of_settings, AclOperation.DESCRIBE_CONFIGS)),
    lists=[
        in_parts("resources", "results", size=2, is_distinct=True),
        one_pass("the names become a set", "resources.configuration_keys"),
    ],
)
