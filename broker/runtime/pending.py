"""A reply that is not ready yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeAlias, TypeVar, cast

T = TypeVar("T")

# What a request may wait for, as its metrics and the log of slow requests name it.
NOTHING: Final = ""
REPLICAS: Final = "replicas"
"""Until in-sync replicas have the records: acks=all, DeleteRecords, an append to an internal topic."""
FLUSH: Final = "flush"
"""Until records are durable, if flush.messages asks for it."""
DATA: Final = "data"
"""A fetch that waits for records, as its client asked."""
MEMBERS: Final = "members"
"""Until the other members of a group have joined, or their leader has assigned partitions."""
DISK: Final = "disk"
"""Until an executor thread has read records that the page cache lacks, or the remote storage has given them."""
VALIDATION: Final = "validation"
"""Until a large batch is examined in an executor thread, or the transaction coordinator has confirmed a partition."""
CONTROLLER: Final = "controller"
"""Until the active controller has answered, or its decision is known here."""
COORDINATOR: Final = "coordinator"
"""Until a coordinator of groups or of transactions has decided, and its records are committed."""
EXECUTOR: Final = "executor"
"""Until an executor thread has made the response."""
AUTHENTICATION: Final = "authentication"
"""Until a token is verified, or the pause after a failed login is over."""
OTHER: Final = "other"
ASKED_FOR: Final = (DATA, MEMBERS)
"""The waits that a client asks for: a request is not slow because of them."""


class Pending(Generic[T]):
    """A reply that a handler returns if its answer waits: for data, for other members, for a commit.

    `complete` is called once, from the event loop, with the response. The connection keeps replies in the order of
    their requests, whatever the order of completion; completing after the connection is gone does nothing. `on_abandon`
    is called when the connection is lost first: then the reply need not be completed.
    """

    __slots__ = ("_listener", "on_abandon", "response", "waits_for")

    def __init__(self, on_abandon: Callable[[], None] | None = None, waits_for: str = OTHER) -> None:
        """`waits_for` is one of the constants of this module."""
        self.on_abandon = on_abandon
        self.waits_for = waits_for
        self.response: T | None = None
        """The response, once it is complete."""
        self._listener: Callable[[T], None] | None = None

    @property
    def is_complete(self) -> bool:
        return self.response is not None

    def complete(self, response: T) -> None:
        """Give the response. A second call is a bug of the broker."""
        assert self.response is None, "a reply was completed twice"
        self.response = response
        self.on_abandon = None
        listener, self._listener = self._listener, None
        if listener is not None:
            listener(response)

    def listen(self, listener: Callable[[T], None]) -> None:
        """Call the listener with the response; at once if it is complete."""
        if self.response is not None:
            listener(self.response)
        else:
            self._listener = listener

    def follow(self, answer: Reply[T]) -> None:
        """Complete this reply with the result of another handler, at once or when it is there. If this reply is
        abandoned, so is the other one.
        """
        if isinstance(answer, Pending):
            self.on_abandon, self.waits_for = answer.abandon, answer.waits_for
            answer.listen(self.complete)
        else:
            self.complete(answer)

    def abandon(self) -> None:
        """Abandon the reply: the client is gone. Completing it later does nothing."""
        self._listener = None
        on_abandon, self.on_abandon = self.on_abandon, None
        if on_abandon is not None:
            on_abandon()


Reply: TypeAlias = T | Pending[T]
"""The result of a handler: the response, or a `Pending` that becomes it."""


def when_ready(answer: Reply[T], use: Callable[[T], None]) -> None:
    """Call `use` with the result of a handler: at once, or when it is there."""
    if isinstance(answer, Pending):
        cast("Pending[T]", answer).listen(use)
    else:
        use(answer)
