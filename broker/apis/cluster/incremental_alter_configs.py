"""IncrementalAlterConfigs (API key 44, versions 0-1; KIP-339, KIP-412): sets, deletes and extends single settings.

A node alters the levels of its own loggers itself (KIP-412); the controller decides on everything else.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.decided import OPEN_MAX
from moldau.broker.apis.lists import at_most
from moldau.broker.apis.needs import Answer, change_response, elements_rule, on_cluster, with_field
from moldau.broker.apis.own_resources import (
    BROKER_LOGGER,
    ConfigChange,
    Verdict,
    alter_own_loggers,
    need_of_settings,
    refusal_of_broker,
    refusal_of_changes,
    refusal_of_node,
)
from moldau.broker.apis.parts import cut
from moldau.broker.network.route import ListenerRole
from moldau.broker.runtime.pending import CONTROLLER, Pending
from moldau.kraft.controller.apis import ENTRIES_MAX
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from moldau.protocol.refusals import refused
from moldau.security.access import AclOperation

if TYPE_CHECKING:
    from moldau.broker.apis.services import Services
    from moldau.broker.network.route import RequestContext


def handle(
    services: Services, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse | Pending[IncrementalAlterConfigsResponse]:
    times = Counter((each.resource_type, each.resource_name) for each in request.resources)
    answers: list[AlterConfigsResourceResponse | None] = []
    for resource in request.resources:
        is_only = times[resource.resource_type, resource.resource_name] == 1
        verdict = _own(services, context, resource, request.validate_only) if is_only else None
        answers.append(None if verdict is None else _answer(resource, verdict))
    passed_on = [resource for resource, answer in zip(request.resources, answers, strict=True) if answer is None]
    if len(passed_on) == len(answers):
        return services.controller.ask(request, context)
    if not passed_on:
        return IncrementalAlterConfigsResponse(responses=[answer for answer in answers if answer is not None])
    reply: Pending[IncrementalAlterConfigsResponse] = Pending(waits_for=CONTROLLER)

    def decided(response: IncrementalAlterConfigsResponse) -> None:
        theirs = iter(response.responses)
        reply.complete(IncrementalAlterConfigsResponse(responses=[each or next(theirs) for each in answers]))

    asked = IncrementalAlterConfigsRequest(resources=passed_on, validate_only=request.validate_only)
    services.controller.submit(asked, decided, context)
    return reply


def _answer(resource: AlterConfigsResource, verdict: Verdict) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=verdict.error,
        error_message=verdict.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _own(
    services: Services,
    context: RequestContext,
    resource: AlterConfigsResource,
    validate_only: bool,
) -> Verdict | None:
    """The result for a resource that this node itself alters; None if the controller alters it."""
    changes = [ConfigChange(each.name, each.config_operation, each.value) for each in resource.configs]
    refusal = refusal_of_changes(changes)
    if refusal is not None:
        return refusal
    if resource.resource_type == BROKER_LOGGER:
        return alter_own_loggers(services.node_id, resource.resource_name, changes, validate_only=validate_only)
    if context.listener.role is ListenerRole.CONTROLLER:
        cluster = services.cluster.image.cluster
        nodes = {*cluster.brokers, *cluster.controllers}
        return refusal_of_node(nodes, resource.resource_type, resource.resource_name)
    return refusal_of_broker(services.node_id, resource.resource_type, resource.resource_name)


def loggers_allowed(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """ALTER_CONFIGS on the cluster for the loggers of this broker; for all other resources the controller asks the
    ACLs.
    """
    assert isinstance(request, IncrementalAlterConfigsRequest)
    loggers = [each for each in request.resources if each.resource_type == BROKER_LOGGER]
    if not loggers or on_cluster(AclOperation.ALTER_CONFIGS).is_met(context.access):
        return answer(context, request)
    error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    refusals: IncrementalAlterConfigsResponse = refused(
        with_field(request, "resources", loggers), context.version, error
    )
    others = [each for each in request.resources if each.resource_type != BROKER_LOGGER]
    if not others:
        return refusals

    def add(response: IncrementalAlterConfigsResponse) -> IncrementalAlterConfigsResponse:
        response.responses.extend(refusals.responses)
        return response

    return change_response(answer(context, with_field(request, "resources", others)), add)


API: Final = Api(
    IncrementalAlterConfigsRequest,
    broker=handle,
    controller=handle,
    needs=elements_rule("resources", "responses", partial(need_of_settings, AclOperation.ALTER_CONFIGS)),
    broker_needs=loggers_allowed,
    lists=[cut("resources", "responses", open_max=OPEN_MAX), at_most(ENTRIES_MAX, "resources.configs")],
)
