"""DeleteTopics: the controller decides, and its answer comes back as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse

if TYPE_CHECKING:
    from broker.network.route import RequestContext
    from broker.requests.forwarding import ForwardingServices
    from broker.runtime.pending import Pending


def handle(
    services: ForwardingServices, context: RequestContext, request: DeleteTopicsRequest
) -> Pending[DeleteTopicsResponse]:
    return services.controller.ask(request, context.version)
