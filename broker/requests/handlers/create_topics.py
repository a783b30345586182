"""CreateTopics: the controller decides, and its answer comes back as it is once the partitions are there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse

if TYPE_CHECKING:
    from broker.network.route import RequestContext
    from broker.requests.forwarding import ForwardingServices
    from broker.runtime.pending import Pending


def handle(
    services: ForwardingServices, context: RequestContext, request: CreateTopicsRequest
) -> Pending[CreateTopicsResponse]:
    return services.controller.ask_for_partitions(request, context.version)
