"""Vote, Fetch of the metadata and the like: what members of the quorum ask one another at controller listeners."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.runtime.pending import Pending

if TYPE_CHECKING:
    from broker.network.connection import RequestContext
    from broker.node.node import Broker
    from kraft.raft.events import QuorumRequest


def handle(broker: Broker, context: RequestContext, request: QuorumRequest) -> Pending[object]:
    """The Raft machine answers, at once or later."""
    return broker.quorum.receive(request, context.version, context.listener.name)
