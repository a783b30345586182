"""A reply that is not ready yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Pending(Generic[T]):
    """Returned by a handler whose answer waits: for data, for other members, for a commit.

    `complete` is called once, from the event loop, with the response. The connection keeps replies in the order of
    their requests, whatever the order of completion; completing after the connection is gone does nothing. `on_abandon`
    is called when the connection is lost first: then the reply need not be completed.
    """

    __slots__ = ("_listener", "_response", "on_abandon")

    def __init__(self, on_abandon: Callable[[], None] | None = None) -> None:
        self.on_abandon = on_abandon
        self._response: T | None = None
        self._listener: Callable[[T], None] | None = None

    @property
    def is_complete(self) -> bool:
        return self._response is not None

    def complete(self, response: T) -> None:
        """Give the response. A second call is a bug of the broker."""
        assert self._response is None, "a reply was completed twice"
        self._response = response
        self.on_abandon = None
        listener, self._listener = self._listener, None
        if listener is not None:
            listener(response)

    def listen(self, listener: Callable[[T], None]) -> None:
        """Call the listener with the response; at once where it is complete."""
        if self._response is not None:
            listener(self._response)
        else:
            self._listener = listener

    def abandon(self) -> None:
        """Abandon the reply: the client is gone. Completing it later does nothing."""
        self._listener = None
        on_abandon, self.on_abandon = self.on_abandon, None
        if on_abandon is not None:
            on_abandon()
