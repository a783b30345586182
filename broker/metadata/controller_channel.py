"""The way to the active controller, wherever it is: in this process, or on the node that leads the quorum.

A request whose controller is lost on the way is asked again of the next one, until its time is up. So a controller may
see it twice: what it has already done it refuses the second time, as Apache Kafka's does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from broker.metadata.refusals import error_of, refused
from broker.network.peer_channel import NoResponse, PeerChannels
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    import asyncio

    from broker.runtime.environment import Environment

Reply = Callable[..., None]
RETRY_MS: Final = 50
PATIENCE_MS: Final = 30_000
"""For requests that do not say themselves how long they may take."""
PURPOSE: Final = "controller"
LOST: Final = (ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_CONTROLLER_ID)
"""Answers of a node that does not lead (any more)."""


class ControllerLocation(Protocol):
    """Who leads the quorum, as far as this node knows."""

    def decide(self, request: object, reply: Reply, given_up: Callable[[], None]) -> bool:
        """Answer here; False where this node does not lead. `given_up` is called instead where its term ends first."""

    def leader_answered(self) -> None:
        """Whoever leads is alive."""

    @property
    def leader_address(self) -> tuple[str, int] | None:
        """Host and port of the leader's controller listener; None where nobody is known to lead."""


class Attempt(NamedTuple):
    """A request on its way; it is given up at the deadline."""

    request: object
    reply: Reply
    deadline_ms: int
    version: int | None


class ControllerChannel:
    """`submit` gives each request exactly one reply, unless this node stops first."""

    def __init__(
        self,
        leadership: ControllerLocation,
        channels: PeerChannels,
        environment: Environment,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._leadership = leadership
        self._channels = channels
        self._environment = environment
        self._loop = loop
        self._is_closed = False

    def submit(self, request: object, reply: Reply, version: int | None = None) -> None:
        """Have the active controller decide on a request. A reply that says REQUEST_TIMED_OUT may hide a decision.

        A request of a client goes on in the version in which it came: another has no place for some of what it says.
        """
        patience_ms = getattr(request, "timeout_ms", PATIENCE_MS)
        self._try(Attempt(request, reply, self._environment.monotonic_ms() + max(0, patience_ms), version))

    def leader_changed(self) -> None:
        """Wait no longer for a controller of before."""
        self._channels.close(PURPOSE)

    def close(self) -> None:
        """Answer nobody any more: who waits is being stopped too."""
        self._is_closed = True

    def _try(self, attempt: Attempt) -> None:
        if self._is_closed:
            return
        left_ms = attempt.deadline_ms - self._environment.monotonic_ms()
        if self._leadership.decide(attempt.request, attempt.reply, lambda: self._later(attempt)):
            return
        address = self._leadership.leader_address
        if left_ms <= 0:
            attempt.reply(refused(attempt.request, ErrorCode.REQUEST_TIMED_OUT))
        elif address is None:
            self._later(attempt)
        else:
            channel = self._channels.to(PURPOSE, *address)
            channel.ask(attempt.request, lambda response: self._answered(attempt, response), left_ms, attempt.version)

    def _later(self, attempt: Attempt) -> None:
        self._loop.call_later(RETRY_MS / 1000, self._try, attempt)

    def _answered(self, attempt: Attempt, response: object) -> None:
        if self._is_closed:
            return
        if isinstance(response, NoResponse) or error_of(response) in LOST:
            self._later(attempt)
        else:
            self._leadership.leader_answered()
            attempt.reply(response)
