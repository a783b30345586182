"""AlterConfigs: the controller decides, and its answer comes back as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse

if TYPE_CHECKING:
    from broker.connection import RequestContext
    from broker.node import Broker
    from broker.pending import Pending


def handle(broker: Broker, context: RequestContext, request: AlterConfigsRequest) -> Pending[AlterConfigsResponse]:
    return broker.ask_controller(request)
