"""AlterConfigs (API key 33, versions 0-2; KIP-133): replaces all overrides of a resource; the controller decides.

Behind a broker's listener a resource that names another broker is refused without asking the controller.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.decided import OPEN_MAX
from moldau.broker.apis.lists import at_most
from moldau.broker.apis.needs import elements_rule
from moldau.broker.apis.own_resources import need_of_settings, refusal_of_broker
from moldau.broker.apis.parts import cut
from moldau.broker.network.route import ListenerRole
from moldau.broker.runtime.pending import CONTROLLER, Pending
from moldau.kraft.controller.apis import ENTRIES_MAX
from moldau.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from moldau.security.access import AclOperation

if TYPE_CHECKING:
    from moldau.broker.apis.services import Services
    from moldau.broker.network.route import RequestContext


def handle(
    services: Services, context: RequestContext, request: AlterConfigsRequest
) -> AlterConfigsResponse | Pending[AlterConfigsResponse]:
    answers, passed_on = [], []
    for resource in request.resources:
        refusal = None
        if context.listener.role is ListenerRole.BROKER:
            refusal = refusal_of_broker(services.node_id, resource.resource_type, resource.resource_name)
        if refusal is None:
            passed_on.append(resource)
        else:
            answers.append(
                AlterConfigsResourceResponse(
                    error_code=refusal.error,
                    error_message=refusal.message,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
            )
    if not answers:
        return services.controller.ask(request, context)
    if not passed_on:
        return AlterConfigsResponse(responses=answers)
    reply: Pending[AlterConfigsResponse] = Pending(waits_for=CONTROLLER)

    def decided(response: AlterConfigsResponse) -> None:
        reply.complete(AlterConfigsResponse(responses=answers + response.responses))

    asked = AlterConfigsRequest(resources=passed_on, validate_only=request.validate_only)
    services.controller.submit(asked, decided, context)
    return reply


API: Final = Api(
    AlterConfigsRequest,
    broker=handle,
    controller=handle,
    needs=elements_rule("resources", "responses", partial(need_of_settings, AclOperation.ALTER_CONFIGS)),
    lists=[cut("resources", "responses", open_max=OPEN_MAX), at_most(ENTRIES_MAX, "resources.configs")],
)
