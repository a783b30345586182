"""Sends requests to the active controller, whether it runs in this process or on another node.

If the controller fails before it responds, the request is sent again to the next controller, until its timeout has
passed. So a controller may receive a request twice. It refuses the second one, like Apache Kafka's controller.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from moldau.broker.metadata.enveloping import ForwardedClient, enclosed_response, enveloped_request, requester_of
from moldau.broker.metadata.refusals import error_of
from moldau.broker.network.peer_channel import NoResponseReason, PeerChannels
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.envelope import EnvelopeResponse
from moldau.protocol.refusals import refused_with_text
from moldau.security.principal import NODE, Requester

if TYPE_CHECKING:
    import asyncio

    from moldau.broker.runtime.environment import Environment

log = logging.getLogger("moldau.quorum")

Reply = Callable[..., None]
RETRY_MS: Final = 50
PATIENCE_MS: Final = 30_000
"""The timeout (ms) of a request that has no field `timeout_ms`, and of a request to another node."""
PURPOSE: Final = "controller"
RESPONSE_LOST_ERRORS: Final = (ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_CONTROLLER_ID)
"""The errors with which a node that does not lead the quorum answers a request to the controller."""


class ControllerLocation(Protocol):
    """Finds the active controller, on this node or on another, as far as this node knows."""

    def decide(
        self,
        request: object,
        reply: Reply,
        given_up: Callable[[], None],
        requester: Requester = NODE,
    ) -> bool:
        """Pass the request to the controller of this node. Returns False if this node does not lead the quorum.

        `given_up` is called instead of `reply` if the term of this controller ends before the response.
        """

    @property
    def is_active(self) -> bool:
        """Whether this node is the active controller: it leads the metadata quorum, and its controller handles
        requests.
        """

    def note_leader_answered(self) -> None:
        """Note that the active controller, on another node, has responded to a request."""

    @property
    def leader_address(self) -> tuple[str, int] | None:
        """Host and port of the leader's controller listener; None if no leader is known."""


class ClientService(Protocol):
    """Serves requests of clients at the controller of this node, with the permissions of each client."""

    def serve(self, request: object, version: int, client: ForwardedClient, reply: Callable[[object], None]) -> None:
        """Serve a request. `reply` gets the response; NOT_CONTROLLER if this node does not lead any more."""


class PendingAttempt:
    """A request that has no response yet. At its deadline it gets REQUEST_TIMED_OUT."""

    __slots__ = ("_reply", "client", "deadline_ms", "is_over", "request", "timer", "version")

    def __init__(
        self, request: object, reply: Reply, deadline_ms: int, version: int | None, client: ForwardedClient | None
    ) -> None:
        self.request = request
        self.deadline_ms = deadline_ms
        self.version = version
        self.client = client
        self.is_over = False
        """Whether the request has its response."""
        self.timer: asyncio.TimerHandle | None = None
        """The timer for the deadline; None until the request is sent to another node."""
        self._reply = reply

    def reply(self, response: object) -> None:
        """Pass the response on, unless the request has had one already: a controller may answer after the deadline."""
        if self.is_over:
            return
        self.is_over = True
        if self.timer is not None:
            self.timer.cancel()
        self._reply(response)


class ControllerChannel:
    """This node's channel to the active controller. `submit` gives each request exactly one response, unless this node
    stops first.
    """

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
        self._clients: ClientService | None = None
        """Serves requests of clients while this node leads; None if there is no authorizer, or no controller on this
        node.
        """

    def serve_clients(self, service: ClientService) -> None:
        """Pass requests of clients to `service` while this node leads."""
        self._clients = service

    def submit(
        self, request: object, reply: Reply, version: int | None = None, client: ForwardedClient | None = None
    ) -> None:
        """Pass a request to the active controller. After REQUEST_TIMED_OUT the controller may have decided on the
        request or not.

        A client's request keeps the version in which the client sent it, because another version may lack some of its
        fields. To another node it is sent in an Envelope with the client's principal.
        """
        patience_ms = getattr(request, "timeout_ms", PATIENCE_MS)
        deadline_ms = self._environment.monotonic_ms() + max(0, patience_ms)
        self._try(PendingAttempt(request, reply, deadline_ms, version, client))

    def close(self) -> None:
        """Stop passing responses on, because this node stops together with the callers that wait for them."""
        self._is_closed = True

    def _try(self, attempt: PendingAttempt) -> None:
        if self._is_closed or attempt.is_over:
            return
        if self._clients is not None and attempt.client is not None and self._leadership.is_active:
            assert attempt.version is not None, "the request of a client has a version"
            self._clients.serve(attempt.request, attempt.version, attempt.client, partial(self._served, attempt))
            return
        left_ms = attempt.deadline_ms - self._environment.monotonic_ms()
        requester = requester_of(attempt.request, attempt.version, attempt.client)
        if self._leadership.decide(attempt.request, attempt.reply, lambda: self._later(attempt), requester):
            return
        address = self._leadership.leader_address
        if left_ms <= 0:
            self._time_out(attempt)
        elif address is None:
            self._later(attempt)
        else:
            if attempt.timer is None:
                attempt.timer = self._loop.call_later(left_ms / 1000, self._time_out, attempt)
            # The channel closes its connection after a timeout, with the heartbeats and the requests of others.
            channel = self._channels.to(PURPOSE, *address)
            if attempt.client is None:
                answered = partial(self._answered, attempt)
                channel.ask(attempt.request, answered, PATIENCE_MS, attempt.version)
            else:
                assert attempt.version is not None, "the request of a client has a version"
                sealed = enveloped_request(attempt.request, attempt.version, attempt.client)
                channel.ask(sealed, partial(self._answered_in_envelope, attempt), PATIENCE_MS)

    def _time_out(self, attempt: PendingAttempt) -> None:
        if not self._is_closed:
            attempt.reply(refused_with_text(attempt.request, attempt.version, ErrorCode.REQUEST_TIMED_OUT))

    def _later(self, attempt: PendingAttempt) -> None:
        self._loop.call_later(RETRY_MS / 1000, self._try, attempt)

    def _served(self, attempt: PendingAttempt, response: object) -> None:
        if error_of(response) in RESPONSE_LOST_ERRORS:
            self._later(attempt)
        elif not self._is_closed:
            attempt.reply(response)

    def _answered_in_envelope(self, attempt: PendingAttempt, response: object) -> None:
        if not isinstance(response, EnvelopeResponse):
            self._answered(attempt, response)
        elif response.error_code == ErrorCode.NONE:
            assert attempt.version is not None
            self._answered(attempt, enclosed_response(response, type(attempt.request), attempt.version))
        elif response.error_code in RESPONSE_LOST_ERRORS:
            self._later(attempt)
        else:
            # As in Apache Kafka, the client is not told about a problem between brokers and controllers.
            log.error("the controller refuses an envelope: %s", ErrorCode(response.error_code).name)
            self._answered(attempt, refused_with_text(attempt.request, attempt.version, ErrorCode.UNKNOWN_SERVER_ERROR))

    def _answered(self, attempt: PendingAttempt, response: object) -> None:
        if self._is_closed:
            return
        if isinstance(response, NoResponseReason) or error_of(response) in RESPONSE_LOST_ERRORS:
            self._later(attempt)
        else:
            self._leadership.note_leader_answered()
            attempt.reply(response)
