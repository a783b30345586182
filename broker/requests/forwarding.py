"""Forwarding: what a broker hands on to the active controller, and the answer that comes back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from broker.purgatory.purgatory import DelayedOperation, Purgatory
from broker.runtime.pending import Pending

Response = TypeVar("Response")


class VersionedControllerPort(Protocol):
    """The way to the active controller; a client's request keeps its version."""

    def submit(self, request: object, reply: Callable[..., None], version: int | None = None) -> None:
        """Send a request; `reply` is called once with the response, on the event loop."""


class Forwarding:
    """Requests of clients that the controller decides."""

    def __init__(
        self,
        controller: VersionedControllerPort,
        purgatory: Purgatory,
        when_made: Callable[[Callable[[], None]], None],
    ) -> None:
        """`when_made(done)` calls `done` once the partitions that this broker was told to make are there."""
        self._controller = controller
        self._purgatory = purgatory
        self._when_made = when_made

    def ask(self, request: object, version: int) -> Pending[Response]:
        """Forward a request in this version; the controller's answer is the reply."""
        reply: Pending[Response] = Pending()
        self._controller.submit(request, reply.complete, version)
        return reply

    def ask_for_partitions(self, request: object, version: int) -> Pending[Response]:
        """Forward a request for new partitions; the reply comes once those of this broker can be led."""
        kind = type(request).__name__.removesuffix("Request")
        operation: DelayedOperation[Response] = DelayedOperation(self._purgatory, kind, None, lambda is_last: None)

        def answered(response: Response) -> None:
            self._when_made(lambda: operation.complete(response))

        self._controller.submit(request, answered, version)
        return operation.reply

    def submit(self, request: object, reply: Callable[..., None], version: int | None = None) -> None:
        """Forward a request of which the answer is only a part of the reply."""
        self._controller.submit(request, reply, version)


class ForwardingServices(Protocol):
    """What a handler takes that only forwards."""

    @property
    def controller(self) -> Forwarding: ...
