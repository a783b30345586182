"""A reply that is not ready yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Pending(Generic[T]):
    """Returned by a handler whose answer waits: for data, for other members, for a commit.

    `complete` is called once, from the event loop, with the response. The connection keeps replies in the order of
    their requests, whatever the order of completion; completing after the connection is gone does nothing.
    """

    __slots__ = ("_listener", "_response")

    def __init__(self) -> None:
        self._response: T | None = None
        self._listener: Callable[[T], None] | None = None

    @property
    def is_complete(self) -> bool:
        return self._response is not None

    def complete(self, response: T) -> None:
        """Give the response. A second call is a bug of ours."""
        assert self._response is None, "a reply was completed twice"
        self._response = response
        if self._listener is not None:
            self._listener(response)

    def listen(self, listener: Callable[[T], None]) -> None:
        """Call the listener with the response, at once where it is already there."""
        self._listener = listener
        if self._response is not None:
            listener(self._response)
