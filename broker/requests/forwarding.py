"""Forwarding: what a broker hands on to the active controller, and the answer that comes back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from broker.runtime.pending import Pending

Response = TypeVar("Response")


class VersionedControllerPort(Protocol):
    """The way to the active controller; a client's request keeps its version."""

    def submit(self, request: object, reply: Callable[..., None], version: int | None = None) -> None:
        """Send a request; `reply` is called once with the response, on the event loop."""


class Forwarding:
    """Requests of clients that the controller decides."""

    def __init__(self, controller: VersionedControllerPort, when_made: Callable[[Callable[[], None]], None]) -> None:
        """`when_made(done)` calls `done` once the partitions that this broker was told to make are there."""
        self._controller = controller
        self._when_made = when_made

    def ask(self, request: object, version: int) -> Pending[Response]:
        """Forward a request in this version; the controller's answer is the reply."""
        reply: Pending[Response] = Pending()
        self._controller.submit(request, reply.complete, version)
        return reply

    def ask_for_partitions(self, request: object, version: int) -> Pending[Response]:
        """Forward a request for new partitions; the reply comes once those of this broker can be led."""
        reply: Pending[Response] = Pending()

        def answered(response: Response) -> None:
            self._when_made(lambda: reply.complete(response))

        self._controller.submit(request, answered, version)
        return reply

    def submit(self, request: object, reply: Callable[..., None], version: int | None = None) -> None:
        """Forward a request of which the answer is only a part of the reply."""
        self._controller.submit(request, reply, version)


class ForwardingServices(Protocol):
    """What a handler takes that only forwards."""

    @property
    def controller(self) -> Forwarding: ...
