"""CreateTopics (API key 19, versions 2-7; KIP-4, KIP-464, KIP-525, KIP-516): the controller decides.

Its response goes to the client as it is, once the partitions that this broker was assigned are made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse

if TYPE_CHECKING:
    from moldau.broker.network.route import RequestContext
    from moldau.broker.requests.forwarding import ForwardingServices
    from moldau.broker.runtime.pending import Pending


def handle(
    services: ForwardingServices, context: RequestContext, request: CreateTopicsRequest
) -> Pending[CreateTopicsResponse]:
    return services.controller.ask_for_partitions(request, context)
