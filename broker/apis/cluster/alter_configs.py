"""Changes of settings. A node changes the levels of its own loggers itself (KIP-412), and refuses changes of other
brokers' settings. The controller decides on everything else.

AlterConfigs (API key 33, versions 0-2; KIP-133): replaces all overrides of a resource.
1: throttled replies come before the wait (KIP-219) · 2: tagged fields (KIP-482).
IncrementalAlterConfigs (API key 44, versions 0-1; KIP-339, KIP-412): sets, deletes and extends single settings.
1: tagged fields (KIP-482).

DIVERGES: Apache Kafka 4.3.1 treats two alterations of one resource in another way; here both are refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from moldau.broker.apis.api import Api
from moldau.broker.apis.lists import at_most
from moldau.broker.apis.needs import (
    Answer,
    Need,
    change_response,
    elements_rule,
    on_cluster,
    on_group,
    on_topic,
    with_field,
)
from moldau.broker.apis.parts import OPEN_MAX, in_parts
from moldau.broker.apis.services import Services
from moldau.broker.config.log_levels import DELETE, alter_loggers
from moldau.broker.config.values import whole_number
from moldau.broker.network.route import ListenerRole, RequestContext
from moldau.kraft.controller.apis import ENTRIES_MAX
from moldau.kraft.controller.decision import ApiError
from moldau.kraft.image.configs import ResourceType
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages import alter_configs, incremental_alter_configs
from moldau.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from moldau.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from moldau.protocol.refusals import refused
from moldau.security.access import AclOperation

BROKER_LOGGER: Final = 8


class ConfigChange(NamedTuple):
    """A change of one setting by IncrementalAlterConfigs: the setting's name, the operation's code, and the value."""

    name: str
    operation: int
    value: str | None


def alter(services: Services, context: RequestContext, request: AlterConfigsRequest) -> object:
    outcomes = [
        refusal_of_broker(services.node_id, each.resource_type, each.resource_name)
        if context.listener.role is ListenerRole.BROKER
        else None
        for each in request.resources
    ]
    make = alter_configs.AlterConfigsResourceResponse
    return _passed_on(services, context, request, outcomes, make, AlterConfigsResponse)


def alter_incrementally(services: Services, context: RequestContext, request: IncrementalAlterConfigsRequest) -> object:
    times = Counter((each.resource_type, each.resource_name) for each in request.resources)
    outcomes = [
        _own(services, context, each, request.validate_only)
        if times[each.resource_type, each.resource_name] == 1
        else None
        for each in request.resources
    ]
    make = incremental_alter_configs.AlterConfigsResourceResponse
    return _passed_on(services, context, request, outcomes, make, IncrementalAlterConfigsResponse)


def _passed_on(
    services: Services,
    context: RequestContext,
    request: Any,
    outcomes: Sequence[ApiError | None],
    result_of: Callable[..., object],
    response_of: Callable[..., object],
) -> object:
    """Answer with the outcome of each resource that has one. The other resources are forwarded to the controller, whose
    results are merged in the order of the request."""
    results = [
        None
        if outcome is None
        else result_of(
            error_code=outcome.error,
            error_message=outcome.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource, outcome in zip(request.resources, outcomes, strict=True)
    ]
    left = [resource for resource, outcome in zip(request.resources, outcomes, strict=True) if outcome is None]
    if len(left) == len(results):
        return services.controller.ask(request, context)
    if not left:
        return response_of(responses=results)

    def joined(response: Any) -> object:
        theirs = iter(response.responses)
        return response_of(responses=[each or next(theirs) for each in results])

    return change_response(services.controller.ask(with_field(request, "resources", left), context), joined)


def _own(
    services: Services, context: RequestContext, resource: AlterConfigsResource, validate_only: bool
) -> ApiError | None:
    """The result for a resource that this node changes or refuses itself; None if the controller decides on it."""
    changes = [ConfigChange(each.name, each.config_operation, each.value) for each in resource.configs]
    refusal = refusal_of_changes(changes)
    if refusal is not None:
        return refusal
    if resource.resource_type == BROKER_LOGGER:
        return alter_own_loggers(services.node_id, resource.resource_name, changes, validate_only=validate_only)
    if context.listener.role is ListenerRole.BROKER:
        return refusal_of_broker(services.node_id, resource.resource_type, resource.resource_name)
    if resource.resource_type != ResourceType.BROKER or not resource.resource_name:
        return None
    # A controller accepts settings for every registered node.
    cluster = services.cluster.image.cluster
    number = whole_number(resource.resource_name)
    if number is None or number in {*cluster.brokers, *cluster.controllers}:
        return None
    return ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {resource.resource_name} found.")


def refusal_of_changes(changes: Sequence[ConfigChange]) -> ApiError | None:
    """The error for changes that name a setting twice or lack a value; None if there is none. As in Apache Kafka, this
    error comes before one about the broker that the settings are for."""
    if len({each.name for each in changes}) < len(changes):
        return ApiError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [each.name for each in changes if each.value is None and each.operation != DELETE]
    if nulls:
        return ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(nulls)}")
    return None


def refusal_of_broker(node_id: int, resource_type: int, name: str) -> ApiError | None:
    """The error for settings of another broker than `node_id`; None for other resources and an empty name."""
    if resource_type != ResourceType.BROKER or not name:
        return None
    problem = problem_of_node(name, node_id, f"Unexpected broker id, expected {node_id}, but received {name}")
    return None if problem is None else ApiError(ErrorCode.INVALID_REQUEST, problem)


def alter_own_loggers(node_id: int, name: str, changes: Sequence[ConfigChange], *, validate_only: bool) -> ApiError:
    """Set or reset the levels of this process's loggers. If one change is refused, none is made."""
    problem = problem_of_node(name, node_id, f"Unexpected node id. Expected {node_id}, but received {name}")
    if problem is not None:
        return ApiError(ErrorCode.INVALID_REQUEST, problem)
    return ApiError(*alter_loggers(changes, validate_only=validate_only))


def problem_of_node(name: str, node_id: int, other: str, kind: str = "Node") -> str | None:
    """Say why a resource's name is not this node's id; None if it is. `other` is the text for another node's id."""
    number = whole_number(name)
    if number is None or not -(1 << 31) <= number < 1 << 31:
        return f"{kind} id must be an integer, but it is: {name}"
    return None if number == node_id else other


def need_of_settings(operation: AclOperation, services: Services, context: RequestContext, element: Any) -> Need:
    """The permission that a client needs for the settings of a resource: on the topic or group if they are its own
    settings, otherwise on the cluster."""
    if element.resource_type == ResourceType.TOPIC:
        return on_topic(operation, element.resource_name)
    if element.resource_type == ResourceType.GROUP:
        return on_group(operation, element.resource_name)
    return on_cluster(operation)


def check_logger_changes(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """A rule for brokers. A change of this broker's loggers needs ALTER_CONFIGS on the cluster. For all other resources
    the controller checks the ACLs."""
    assert isinstance(request, IncrementalAlterConfigsRequest)
    loggers = [each for each in request.resources if each.resource_type == BROKER_LOGGER]
    if not loggers or on_cluster(AclOperation.ALTER_CONFIGS).is_met(context.access):
        return answer(context, request)
    refusals: IncrementalAlterConfigsResponse = refused(
        with_field(request, "resources", loggers), context.version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    )
    others = [each for each in request.resources if each.resource_type != BROKER_LOGGER]
    if not others:
        return refusals

    def add(response: IncrementalAlterConfigsResponse) -> IncrementalAlterConfigsResponse:
        response.responses.extend(refusals.responses)
        return response

    return change_response(answer(context, with_field(request, "resources", others)), add)


ALTER_RULE: Final = elements_rule("resources", "responses", partial(need_of_settings, AclOperation.ALTER_CONFIGS))
RESOURCES: Final = (in_parts("resources", "responses", open_max=OPEN_MAX), at_most(ENTRIES_MAX, "resources.configs"))

APIS: Final = (
    Api(AlterConfigsRequest, broker=alter, controller=alter, needs=ALTER_RULE, lists=RESOURCES),
    Api(
        IncrementalAlterConfigsRequest,
        broker=alter_incrementally,
        controller=alter_incrementally,
        needs=ALTER_RULE,
        broker_needs=check_logger_changes,
        lists=RESOURCES,
    ),
)
