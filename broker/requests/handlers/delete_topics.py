"""DeleteTopics: the controller decides, and its answer comes back as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse

if TYPE_CHECKING:
    from broker.network.connection import RequestContext
    from broker.node.node import Broker
    from broker.runtime.pending import Pending


def handle(broker: Broker, context: RequestContext, request: DeleteTopicsRequest) -> Pending[DeleteTopicsResponse]:
    return broker.ask_controller(request, context.version)
