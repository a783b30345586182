"""APIs whose requests a broker forwards unchanged to the active controller (KIP-590, without an Envelope)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moldau.broker.network.route import RequestContext
    from moldau.broker.requests.forwarding import ForwardingServices
    from moldau.broker.runtime.pending import Pending


def handle(services: ForwardingServices, context: RequestContext, request: object) -> Pending[object]:
    return services.controller.ask(request, context)
