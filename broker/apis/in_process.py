"""Serves the requests of clients by the controller of the same process, as if they had come in an Envelope.

    broker's handler ──▶ ControllerChannel ──▶ this node is the active controller: route of its controller listener
                                          └──▶ another node is: Envelope to that node

On both paths the active controller checks its ACLs for the client's principal.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import cast

from moldau.broker.metadata.enveloping import CORRELATION_ID, ForwardedClient
from moldau.broker.metadata.quorum import Quorum
from moldau.broker.network.route import Authentication, RequestContext, ServingListener
from moldau.broker.runtime.pending import Pending
from moldau.protocol.schema import spec_of
from moldau.security.access import Access


class ClientsInProcess:
    """Passes clients' requests to the controller of this node, under the client's own permissions."""

    def __init__(self, listener: ServingListener, quorum: Quorum) -> None:
        """`listener`: one of this node's controller listeners, for its routes. `quorum` gets this service."""
        self._listener = listener
        quorum.serve_clients(self)

    def serve(self, request: object, version: int, client: ForwardedClient, reply: Callable[[object], None]) -> None:
        """Answer a request under the client's access; NOT_CONTROLLER if this node does not lead any more."""
        key = spec_of(type(request)).key
        assert key is not None, "only requests are sent"
        route = self._listener.routes[key]
        if version not in route.decoders:
            route.load(version)
        route.requests += 1
        access = self._listener.access_of(client.principal, client.host)
        context = RequestContext(
            LocalClient(self._listener, access, client.host), route, version, CORRELATION_ID, client.client_id
        )
        response = route.handle(context, request)
        if isinstance(response, Pending):
            cast("Pending[object]", response).listen(reply)
        else:
            reply(response)


class LocalClient:
    """The client of a request that was passed in the process; it stands in for a connection."""

    def __init__(self, listener: ServingListener, access: Access, client_host: str) -> None:
        self.listener = listener
        self.access = access
        self.client_host = client_host
        self.client_port = 0
        self.software = ("unknown", "unknown")
        self.served: dict[tuple[str | bytes, int], int] = {}
        self.heartbeat_broker_id = -1
        self.is_of_follower = False
        self.authentication: Authentication | None = None

    def close(self, reason: str) -> None:
        """Do nothing: the controller does not close the connection that the client has to the broker."""

    def sends_files(self) -> bool:
        return False

    def hold(self) -> None:
        """Do nothing: the client's connection to the broker waits for the reply by itself."""

    def throttle(self, delay_ms: int) -> None:
        """Do nothing: the broker's handler throttles the client's connection."""

    def hold_during(self, work: Coroutine[object, object, None]) -> Coroutine[object, object, None]:
        from moldau.broker.apis.cluster.envelope import log_failure  # a handler is imported at the first request

        return log_failure(work, self.client_host)
