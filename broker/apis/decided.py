"""What the controller decides: the handlers that pass a request to it, and the APIs whose rows in
`kraft/controller/apis.py` say everything, so that they have no module here.

KIP-590: brokers forward what the controller decides. KIP-631: brokers register and send heartbeats to it. KIP-919:
tools connect to controllers.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.lists import at_most
from moldau.broker.apis.needs import needs_cluster
from moldau.broker.apis.parts import ListPath, Parts
from moldau.broker.metadata.enveloping import ForwardedClient, requester_of
from moldau.broker.runtime.pending import CONTROLLER, Pending
from moldau.kraft.controller.apis import ControllerApi
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from moldau.protocol.refusals import refused_with_text

if TYPE_CHECKING:
    from moldau.broker.apis.forwarding import ForwardingServices
    from moldau.broker.apis.services import Services
    from moldau.broker.network.route import RequestContext

OPEN_MAX: Final = 8
"""The most parts of a request that wait for the controller, so that it answers other requests between them."""


def forward(services: ForwardingServices, context: RequestContext, request: object) -> Pending[object]:
    """Pass the request on as it is; the controller's response is the reply."""
    return services.controller.ask(request, context)


def decide(services: Services, context: RequestContext, request: object) -> object:
    """Pass the request to the controller. If this node does not lead, the answer is NOT_CONTROLLER, and the sender
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


def decided(row: ControllerApi) -> Api[Any]:
    """The API of a row: listeners of controllers pass it to the controller, brokers forward the requests of clients."""
    cuts = [Parts(tuple(ListPath(*paths) for paths in row.cut), open_max=OPEN_MAX)] if row.cut else []
    return Api(
        row.request,
        broker=forward if row.is_for_clients else None,
        controller=decide,
        needs=needs_cluster(row.operation),
        lists=[*cuts, *(at_most(most, path) for path, most in row.bounds.items())],
    )
