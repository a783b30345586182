"""Forwards requests of a broker to the active controller (KIP-590), and returns the responses.

    broker's handler ──▶ ControllerChannel ──▶ this node is the active controller: route of its controller listener
                                          └──▶ another node is: Envelope to that node

In both cases the active controller checks its ACLs for the client's principal.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import ParamSpec, TypeVar, cast

from moldau.broker.metadata.enveloping import CORRELATION_ID, ForwardedClient, requester_of
from moldau.broker.metadata.quorum import Quorum
from moldau.broker.network.client_quotas import ClientQuotas
from moldau.broker.network.route import Authentication, ClientConnection, ListenerRole, RequestContext, ServingListener
from moldau.broker.purgatory.purgatory import DelayedOperation, Purgatory
from moldau.broker.runtime.pending import CONTROLLER, Pending
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from moldau.protocol.refusals import refused_with_text
from moldau.protocol.schema import key_of
from moldau.security.access import Access
from moldau.security.principal import ANONYMOUS

log = logging.getLogger("moldau.connection")

P = ParamSpec("P")
Response = TypeVar("Response")


class Forwarding:
    """Passes requests to the active controller. A request at a controller listener goes to the controller of this node.
    If this node is not the leader, or stops leading before the decision is committed, the answer is NOT_CONTROLLER: the
    sender then looks for the leader."""

    def __init__(
        self,
        controller: Quorum,
        purgatory: Purgatory,
        when_made: Callable[[Callable[[], None]], None],
        quotas: ClientQuotas,
    ) -> None:
        """`when_made(done)` calls `done` when this broker has created all replicas that the metadata assigns to it."""
        self._quotas = quotas
        self._controller = controller
        self._purgatory = purgatory
        self._when_made = when_made

    def ask(self, request: object, context: RequestContext) -> Pending[Response]:
        """Forward a request in its version. The controller's response is the reply."""
        reply: Pending[Response] = Pending(waits_for=CONTROLLER)
        self.submit(request, reply.complete, context)
        return reply

    def ask_for_partitions(self, request: object, context: RequestContext) -> Pending[Response]:
        """Forward a request for new partitions. The reply is sent when this broker has created its replicas of them."""
        kind = type(request).__name__.removesuffix("Request")
        operation: DelayedOperation[Response] = DelayedOperation(
            self._purgatory, kind, None, lambda is_last: None, CONTROLLER
        )

        def answered(response: Response) -> None:
            self._when_made(lambda: operation.complete(response))

        self.submit(request, answered, context)
        return operation.reply

    def submit(self, request: object, reply: Callable[..., None], context: RequestContext) -> None:
        """Forward a request, and call `reply` with the controller's response.

        The controller gets the client's principal, unless all three hold: the node has no authorizer, the principal is
        the anonymous one, and no quota limits the mutations of clients."""
        access = context.access
        client = ForwardedClient(access.principal, context.client_host, context.client_id)
        if context.listener.role is ListenerRole.CONTROLLER:
            self._decide(request, reply, context, client)
        elif not access.is_unrestricted or access.principal != ANONYMOUS or self._quotas.bounds_mutations:
            self._controller.submit(request, reply, context.version, client)
        else:
            self._controller.submit(request, reply, context.version)

    def _decide(
        self, request: object, reply: Callable[..., None], context: RequestContext, client: ForwardedClient
    ) -> None:
        """Pass a request to the controller of this node. The client's permissions have been checked already."""
        connection = context.connection
        if isinstance(request, BrokerHeartbeatRequest):
            connection.heartbeat_broker_id = request.broker_id
        requester = requester_of(request, context.version, client)
        # By a connection with heartbeats a broker asks for the topics that it creates by itself: no quota bounds them.
        # What it forwards for a client comes in an Envelope, whose client has no heartbeats.
        if connection.heartbeat_broker_id >= 0:
            requester = requester._replace(is_strict=None)
        lost = partial(_lost, request, context.version, reply)
        if not self._controller.decide(request, reply, lost, requester):
            lost()


def _lost(request: object, version: int, reply: Callable[..., None]) -> None:
    """Answer NOT_CONTROLLER, because the controller is not the leader, so that the sender looks for the leader."""
    reply(refused_with_text(request, version, ErrorCode.NOT_CONTROLLER))


# At the controller


class ClientsInProcess:
    """Passes clients' requests to the controller of this node, with their permissions, as if they came in an
    Envelope."""

    def __init__(self, listener: ServingListener, quorum: Quorum) -> None:
        """`listener` is a controller listener of this node, whose routes are used. `quorum` calls this object."""
        self._listener = listener
        quorum.serve_clients(self)

    def serve(self, request: object, version: int, client: ForwardedClient, reply: Callable[[object], None]) -> None:
        """Answer a request with the client's permissions; NOT_CONTROLLER if this node is not the leader any more."""
        route = self._listener.routes[key_of(type(request))]
        if version not in route.decoders:
            route.load(version)
        route.requests += 1
        access = self._listener.access_of(client.principal, client.host)
        connection = StandInConnection(self._listener, access, client.host)
        error = ErrorCode.UNKNOWN_SERVER_ERROR
        connection.answer_failure = lambda: reply(refused_with_text(request, version, error))
        context = RequestContext(connection, route, version, CORRELATION_ID, client.client_id)
        response = route.handle(context, request)
        if isinstance(response, Pending):
            cast("Pending[object]", response).listen(reply)
        else:
            reply(response)


class StandInConnection:
    """Stands in for the connection of a client whose request came within the process or in an Envelope. The connection
    of an Envelope belongs to a broker, serves other clients and has heartbeats, so it must not be throttled or held.
    The client's own connection, at its broker, waits for the reply and is throttled there."""

    def __init__(self, listener: ServingListener, access: Access, client_host: str) -> None:
        self.listener = listener
        self.access = access
        self.client_host = client_host
        self.client_port = 0
        self.software = ("unknown", "unknown")
        self.served: dict[tuple[str | bytes, int], int] = {}
        self.heartbeat_broker_id = -1
        self.is_of_follower = False
        self.on_lost: Callable[[], None] | None = None
        self.authentication: Authentication | None = None
        self.answer_failure: Callable[[], None] | None = None
        """Answers the request with UNKNOWN_SERVER_ERROR."""

    def close(self, reason: str) -> None:
        """Answer the request with an error, because its handler failed. There is no connection to close."""
        if self.answer_failure is not None:
            self.answer_failure()

    def sends_files(self) -> bool:
        return False

    def hold(self) -> None:
        """Do nothing: the request has no connection of its own."""

    def throttle(self, delay_ms: int) -> None:
        """Do nothing: the broker throttles the client's own connection."""

    def hold_during(self, work: Coroutine[object, object, None]) -> Coroutine[object, object, None]:
        return close_on_failure(self, work)


async def close_on_failure(connection: ClientConnection, work: Coroutine[object, object, None]) -> None:
    """Await work on a request after its handler has returned. An exception is logged, and closes the connection."""
    try:
        await work
    except Exception:
        _close_failed(connection)


def guarded(connection: ClientConnection, call: Callable[P, Response]) -> Callable[P, Response | None]:
    """Wrap later work on a request: an exception is handled as by `close_on_failure`, and the result is None."""

    def guard(*args: P.args, **kwargs: P.kwargs) -> Response | None:
        try:
            return call(*args, **kwargs)
        except Exception:
            _close_failed(connection)
            return None

    return guard


def _close_failed(connection: ClientConnection) -> None:
    log.exception("a handler failed; it had a request of %s", connection.client_host)
    connection.close("the handler failed")
