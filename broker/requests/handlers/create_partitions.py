"""CreatePartitions (API key 37, versions 0-3; KIP-195, KIP-599): the controller decides.

Its response goes to the client as it is, once the partitions that this broker was assigned are made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse

if TYPE_CHECKING:
    from moldau.broker.network.route import RequestContext
    from moldau.broker.requests.forwarding import ForwardingServices
    from moldau.broker.runtime.pending import Pending


def handle(
    services: ForwardingServices, context: RequestContext, request: CreatePartitionsRequest
) -> Pending[CreatePartitionsResponse]:
    return services.controller.ask_for_partitions(request, context)
