"""IncrementalAlterConfigs: a node's own loggers are set here, the rest is for the controller to decide."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from broker.apis import Role
from broker.own_resources import BROKER_LOGGER, Change, Verdict, alter_own_loggers, refusal_of_broker
from broker.pending import Pending
from protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from broker.connection import RequestContext
    from broker.node import Broker


def handle(
    broker: Broker, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse | Pending[IncrementalAlterConfigsResponse]:
    times = Counter((each.resource_type, each.resource_name) for each in request.resources)
    answers, passed_on = [], []
    for resource in request.resources:
        is_only = times[resource.resource_type, resource.resource_name] == 1
        verdict = _own(broker, context, resource, request.validate_only) if is_only else None
        if verdict is None:
            passed_on.append(resource)
        else:
            answers.append(
                AlterConfigsResourceResponse(
                    error_code=verdict.error,
                    error_message=verdict.message,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
            )
    if not answers:
        return broker.ask_controller(request)
    if not passed_on:
        return IncrementalAlterConfigsResponse(responses=answers)
    reply: Pending[IncrementalAlterConfigsResponse] = Pending()

    def decided(response: IncrementalAlterConfigsResponse) -> None:
        reply.complete(IncrementalAlterConfigsResponse(responses=answers + response.responses))

    asked = IncrementalAlterConfigsRequest(resources=passed_on, validate_only=request.validate_only)
    broker.quorum.submit(asked, decided)
    return reply


def _own(
    broker: Broker, context: RequestContext, resource: AlterConfigsResource, validate_only: bool
) -> Verdict | None:
    """What this node says of a resource; None where the controller is to be asked."""
    if resource.resource_type == BROKER_LOGGER:
        changes = [Change(each.name, each.config_operation, each.value) for each in resource.configs]
        return alter_own_loggers(broker.node_id, resource.resource_name, changes, validate_only=validate_only)
    if context.listener.role is Role.CONTROLLER:
        return None
    return refusal_of_broker(broker.node_id, resource.resource_type, resource.resource_name)
