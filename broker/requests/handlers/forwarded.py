"""What a broker passes on to the active controller as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.network.connection import RequestContext
    from broker.node.node import Broker
    from broker.runtime.pending import Pending


def handle(broker: Broker, context: RequestContext, request: object) -> Pending[object]:
    return broker.ask_controller(request, context.version)
