"""Requests to the active controller at a controller listener: of brokers, and of tools that connect there.

KIP-631: the controller of the metadata quorum decides, and brokers register and send heartbeats to it. KIP-497:
AlterPartition. KIP-730: AllocateProducerIds. KIP-858: AssignReplicasToDirs. KIP-919: tools connect to controllers.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from moldau.broker.metadata.enveloping import ForwardedClient, requester_of
from moldau.broker.runtime.pending import CONTROLLER, Pending
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from moldau.protocol.refusals import refused_with_text

if TYPE_CHECKING:
    from moldau.broker.network.route import RequestContext
    from moldau.broker.requests.services import Services


def handle(services: Services, context: RequestContext, request: object) -> object:
    """Pass the request to the controller. Where this node does not lead, the answer is NOT_CONTROLLER, and the sender
    looks for the leader; the controller may have decided before it lost the leadership, without committing the
    decision.
    """
    if isinstance(request, BrokerHeartbeatRequest):
        context.connection.heartbeat_broker_id = request.broker_id
    active = services.quorum.active_controller
    if active is None:
        return refused_with_text(request, context.version, ErrorCode.NOT_CONTROLLER)
    reply: Pending[object] = Pending(waits_for=CONTROLLER)
    requester = requester_of(
        request, context.version, ForwardedClient(context.principal, context.client_host, context.client_id)
    )
    # By a connection with heartbeats a broker asks for the topics that it creates by itself: no quota bounds them. What
    # it forwards for a client comes in an Envelope, whose client has no heartbeats.
    if context.connection.heartbeat_broker_id >= 0:
        requester = requester._replace(is_strict=None)
    given_up = partial(_given_up, request, context.version, reply)
    active.submit(request, reply.complete, given_up, requester)
    return reply


def _given_up(request: object, version: int, reply: Pending[object]) -> None:
    reply.complete(refused_with_text(request, version, ErrorCode.NOT_CONTROLLER))
