"""Forwarding: requests that a broker passes to the active controller, and their responses (KIP-590)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from moldau.broker.metadata.enveloping import ForwardedClient, requester_of
from moldau.broker.network.client_quotas import ClientQuotas
from moldau.broker.network.route import ListenerRole, RequestContext
from moldau.broker.purgatory.purgatory import DelayedOperation, Purgatory
from moldau.broker.runtime.pending import CONTROLLER, Pending
from moldau.protocol.errors import ErrorCode
from moldau.protocol.refusals import refused_with_text
from moldau.security.principal import ANONYMOUS, Requester

if TYPE_CHECKING:
    pass

Response = TypeVar("Response")


class VersionedControllerPort(Protocol):
    """The channel to the active controller; a client's request keeps its version."""

    def submit(
        self,
        request: object,
        reply: Callable[..., None],
        version: int | None = None,
        client: ForwardedClient | None = None,
    ) -> None:
        """Send a request; `reply` is called once with the response, on the event loop."""

    def decide(
        self,
        request: object,
        reply: Callable[..., None],
        given_up: Callable[[], None],
        requester: Requester,
    ) -> bool:
        """Decide in this process; False if this node does not lead. `given_up` is called if the term ends before
        the decision is committed.
        """


class Forwarding:
    """Passes requests of clients to the active controller, which decides on them."""

    def __init__(
        self,
        controller: VersionedControllerPort,
        purgatory: Purgatory,
        when_made: Callable[[Callable[[], None]], None],
        quotas: ClientQuotas,
    ) -> None:
        """`when_made(done)` calls `done` once this broker has created the replicas that the metadata assigns to it."""
        self._quotas = quotas
        self._controller = controller
        self._purgatory = purgatory
        self._when_made = when_made

    def ask(self, request: object, context: RequestContext) -> Pending[Response]:
        """Forward a request in its version; the controller's response is the reply."""
        reply: Pending[Response] = Pending(waits_for=CONTROLLER)
        self.submit(request, reply.complete, context)
        return reply

    def ask_for_partitions(self, request: object, context: RequestContext) -> Pending[Response]:
        """Forward a request for new partitions. The reply is sent once this broker has created its replicas of them."""
        kind = type(request).__name__.removesuffix("Request")
        operation: DelayedOperation[Response] = DelayedOperation(
            self._purgatory, kind, None, lambda is_last: None, CONTROLLER
        )

        def answered(response: Response) -> None:
            self._when_made(lambda: operation.complete(response))

        self.submit(request, answered, context)
        return operation.reply

    def submit(self, request: object, reply: Callable[..., None], context: RequestContext) -> None:
        """Forward a request whose response is only a part of the reply.

        The controller is told the client's principal, unless it is the anonymous one of a node without an authorizer
        and the controller counts no mutations of clients.
        """
        if context.listener.role is ListenerRole.CONTROLLER:
            # A request at a controller, maybe out of an Envelope, whose client was found to be allowed.
            lost = partial(_lost, request, context.version, reply)
            asking = ForwardedClient(context.principal, context.client_host, context.client_id)
            if not self._controller.decide(request, reply, lost, requester_of(request, context.version, asking)):
                lost()
            return
        access = context.access
        client = None
        if not access.is_unrestricted or access.principal != ANONYMOUS or self._quotas.bounds_mutations:
            client = ForwardedClient(access.principal, context.client_host, context.client_id)
        self._controller.submit(request, reply, context.version, client)


def _lost(request: object, version: int, reply: Callable[..., None]) -> None:
    """Answer NOT_CONTROLLER: the controller does not lead (any more), and the sender looks for the leader."""
    reply(refused_with_text(request, version, ErrorCode.NOT_CONTROLLER))


class ForwardingServices(Protocol):
    """The services of a handler that only forwards."""

    @property
    def controller(self) -> Forwarding: ...
