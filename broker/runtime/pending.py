"""A reply that is completed later, and the names of the things that replies wait for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeAlias, TypeVar, cast

T = TypeVar("T")

# What a request may wait for, as its metrics and the log of slow requests name it.
NOTHING: Final = ""
REPLICAS: Final = "replicas"
"""Waits until in-sync replicas have the records: acks=all, DeleteRecords, an append to an internal topic."""
FLUSH: Final = "flush"
"""Waits until records are durable, if flush.messages asks for that."""
DATA: Final = "data"
"""Waits until there are records for a fetch, for as long as the client asked."""
MEMBERS: Final = "members"
"""Waits until the other members of a group have joined, or until their leader has assigned partitions."""
DISK: Final = "disk"
"""Waits until an executor thread has read records that the page cache lacks, or until remote storage has returned
records.
"""
VALIDATION: Final = "validation"
"""Waits until an executor thread has validated a large batch, or until the transaction coordinator has confirmed a
partition.
"""
CONTROLLER: Final = "controller"
"""Waits until the active controller has answered, or until this node knows its decision."""
COORDINATOR: Final = "coordinator"
"""Waits until a coordinator of groups or of transactions has decided, and its records are committed."""
EXECUTOR: Final = "executor"
"""Waits until an executor thread has made the response."""
AUTHENTICATION: Final = "authentication"
"""Waits until a token is verified, or until the pause after a failed login is over."""
OTHER: Final = "other"
REQUESTED_WAITS: Final = (DATA, MEMBERS)
"""The waits for which clients ask. They do not make a request count as slow."""


class Pending(Generic[T]):
    """The reply that a handler returns if its response comes later: when there are data, other members, or a commit.

    `complete` is called once, on the event loop, with the response. The connection sends replies in the order of their
    requests, also if they are completed in another order. If the connection is lost first, `on_abandon` is called. The
    reply need not be completed then, and completing it has no effect.
    """

    __slots__ = ("_is_abandoned", "_listener", "on_abandon", "on_next", "response", "waits_for")

    def __init__(self, on_abandon: Callable[[], None] | None = None, waits_for: str = OTHER) -> None:
        """`on_abandon` is called if the client disconnects first. `waits_for` is one of the constants of this
        module.
        """
        self.on_abandon = on_abandon
        self.on_next: Callable[[], None] | None = None
        """Called when a later request of the connection would have to wait for this reply; it may complete this one."""
        self.waits_for = waits_for
        self.response: T | None = None
        """The response; None until the reply is complete."""
        self._listener: Callable[[T], None] | None = None
        self._is_abandoned = False

    @property
    def is_complete(self) -> bool:
        return self.response is not None

    def complete(self, response: T) -> None:
        """Complete the reply with the response. A second call is a bug of the broker."""
        assert self.response is None, "a reply was completed twice"
        self.response = response
        self.on_abandon = self.on_next = None
        listener, self._listener = self._listener, None
        if listener is not None:
            listener(response)

    def listen(self, listener: Callable[[T], None]) -> None:
        """Call `listener` with the response: now if the reply is complete, otherwise once it is."""
        if self.response is not None:
            listener(self.response)
        else:
            self._listener = listener

    def follow(self, answer: Reply[T]) -> None:
        """Complete this reply with the result of another handler, now or when that is complete. If this reply is
        abandoned, now or later, the other one is, too.
        """
        if isinstance(answer, Pending):
            if self._is_abandoned:
                answer.abandon()
                return
            self.on_abandon, self.waits_for = answer.abandon, answer.waits_for
            answer.listen(self.complete)
        else:
            self.complete(answer)

    def abandon(self) -> None:
        """Abandon the reply, because the client is gone. If it is completed later, nothing happens."""
        self._listener = self.on_next = None
        self._is_abandoned = True
        on_abandon, self.on_abandon = self.on_abandon, None
        if on_abandon is not None:
            on_abandon()


Reply: TypeAlias = T | Pending[T]
"""The result of a handler: the response, or a `Pending` that completes with it."""


def call_with_response(answer: Reply[T], use: Callable[[T], None]) -> None:
    """Call `use` with the response of a handler: now, or once it is there."""
    if isinstance(answer, Pending):
        cast("Pending[T]", answer).listen(use)
    else:
        use(answer)
