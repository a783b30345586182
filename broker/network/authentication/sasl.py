"""SASL on one connection: the exchange, its replies and pauses, and the routes that are served in each state.

    GREETING                ApiVersions, SaslHandshake
    TOKENS                  SaslAuthenticate; SaslHandshake is refused; a request of any other API gets an error in the
                            response of that API, and then the connection is closed, as in Apache Kafka
    RAW                     no API: each frame is passed to a hook as one message of the mechanism
    AUTHENTICATED           all routes of the listener
    EXPIRED                 SaslHandshake

A request whose API is not in the row of the state ends the connection without being decoded, so handlers need not check
the state. A client has `LOGIN_S` for the whole login: from the connection on, the TLS handshake included. It has the
same time for a renewal, from its SaslHandshake on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Final, Protocol, TypeVar

from moldau.broker.config.sasl import SaslSettings
from moldau.broker.network.authentication.exchange import (
    HandshakeAccepted,
    IllegalRequest,
    LoginAccepted,
    LoginRefused,
    LookupNeeded,
    MechanismMaker,
    SaslExchange,
    ServerChallenge,
    TokenOutcome,
)
from moldau.broker.network.listener_security import AccessMaker, AuthenticationCounts
from moldau.broker.network.route import FrameHook, RawSaslHook, RequestContext, Route, ServingListener
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.pending import AUTHENTICATION, Pending
from moldau.broker.runtime.tasks import Spawn
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from moldau.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from moldau.protocol.refusals import refused, refused_unread
from moldau.security.access import Access

LOGIN_S: Final = 30
"""The time (seconds) for a login.

DIVERGES: in Apache Kafka a client that never logs in is closed as an idle one, and not while it sends a byte now and
then.
"""
DECODED_SIZE_MAX: Final = 16_384
"""The largest request (bytes) of another API that is decoded within the exchange, so that the error response can name
the parts of the request, such as its topics.

DIVERGES: Apache Kafka repeats the parts of larger requests, too. Here they are not decoded, because a client that has
not authenticated could occupy the event loop with them.
"""
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18

Response = TypeVar("Response")
SASL_AUTHENTICATE: Final = 36


class CredentialLookup(Protocol):
    """Fetches data that a mechanism needs, such as the keys of an identity provider.

    It never raises: a failure is a result that the mechanism refuses.
    """

    def __call__(self, what: object) -> Coroutine[object, object, object]: ...


class SaslConnectionPort(Protocol):
    """The part of a connection that the SASL exchange uses."""

    client_host: str
    access: Access
    routes: Mapping[int, Route]
    request_size_max: int
    hook: FrameHook | None

    @property
    def listener(self) -> ServingListener: ...

    def hold(self) -> None: ...

    def hold_during(self, work: Coroutine[object, object, None]) -> Coroutine[object, object, None]: ...

    def close(self, reason: str) -> None: ...


class SaslGate:
    """The mechanisms that one listener offers, and the parts of the node that its SASL exchanges share."""

    def __init__(
        self,
        settings: SaslSettings,
        mechanisms: Mapping[str, MechanismMaker],
        access_of: AccessMaker,
        lookup: CredentialLookup,
        counts: AuthenticationCounts,
        environment: Environment,
        loop: asyncio.AbstractEventLoop,
        spawn: Spawn,
    ) -> None:
        self.settings = settings
        self.mechanisms = mechanisms
        self.access_of = access_of
        self.lookup = lookup
        self.counts = counts
        self.environment = environment
        self.loop = loop
        self.spawn = spawn
        self._routes_of_exchange: Mapping[int, Route] | None = None

    def routes_of_exchange(self, listener: ServingListener) -> Mapping[int, Route]:
        """The routes by API key while a client exchanges SASL messages: every API but SaslHandshake and
        SaslAuthenticate is refused.
        """
        routes = self._routes_of_exchange
        if routes is None:
            routes = self._routes_of_exchange = {
                key: route
                if key in (SASL_HANDSHAKE, SASL_AUTHENTICATE)
                else route.with_handler(_refuse, DECODED_SIZE_MAX)
                for key, route in listener.routes.items()
            }
        return routes

    def begin(self, connection: SaslConnectionPort) -> SaslAuthentication:
        """Begin the exchange of a new connection. Until it succeeds, the connection serves only the APIs of the
        exchange.
        """
        return SaslAuthentication(self, connection)


class SaslAuthentication:
    """The SASL exchange of one connection. The handlers of SaslHandshake and SaslAuthenticate call it."""

    def __init__(self, gate: SaslGate, connection: SaslConnectionPort) -> None:
        self._gate = gate
        self._connection: SaslConnectionPort | None = connection
        self._exchange = SaslExchange(gate.mechanisms, gate.settings.reauth_ms_max)
        self._request_size_max = connection.request_size_max
        self._session_timer: asyncio.TimerHandle | None = None
        self._deadline: asyncio.TimerHandle | None = gate.loop.call_later(LOGIN_S, self._time_out)
        """The timer that ends the login after `LOGIN_S`; None if no login is in progress."""
        self._serve_only(SASL_HANDSHAKE, API_VERSIONS)

    def closed(self) -> None:
        """Note that the connection is closed: cancel the timers of the exchange."""
        self._connection = None
        self._end_deadline()
        self._end_session()

    # Requests

    def handshake(
        self, context: RequestContext, request: SaslHandshakeRequest
    ) -> SaslHandshakeResponse | Pending[SaslHandshakeResponse]:
        """Answer a SaslHandshake request of this connection."""
        gate = self._gate
        match self._exchange.handshake(request.mechanism, context.version, gate.environment.monotonic_ms()):
            case HandshakeAccepted(names, is_raw):
                if self._deadline is None:
                    self._deadline = gate.loop.call_later(LOGIN_S, self._time_out)
                self._end_session()
                self._serve_only()
                if self._connection is not None:
                    if is_raw:
                        self._connection.hook = RawSaslHook(self.raw_token)
                    else:
                        self._connection.routes = gate.routes_of_exchange(self._connection.listener)
                return SaslHandshakeResponse(mechanisms=list(names))
            case IllegalRequest():
                return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
            case LoginRefused(error, _, reason):
                names = tuple(gate.mechanisms) if error is ErrorCode.UNSUPPORTED_SASL_MECHANISM else ()
                return self._fail(reason, SaslHandshakeResponse(error_code=error, mechanisms=list(names)))

    def authenticate(
        self, context: RequestContext, request: SaslAuthenticateRequest
    ) -> SaslAuthenticateResponse | Pending[SaslAuthenticateResponse]:
        """Answer a SaslAuthenticate request of this connection."""
        outcome = self._exchange.token(bytes(request.auth_bytes), self._gate.environment.wall_ms())
        if isinstance(outcome, LookupNeeded):
            reply: Pending[SaslAuthenticateResponse] = Pending(waits_for=AUTHENTICATION)
            connection = self._connection
            if connection is not None:
                connection.hold()
                self._gate.spawn(connection.hold_during(self._look_up(outcome.what, reply)))
            return reply
        return self._response(outcome)

    def raw_token(self, token: bytes) -> bytes | None:
        """Handle a message of the mechanism that came in a frame without a header.

        Returns the message to answer with. Returns None if the login failed, so that the connection ends. A mechanism
        that needs a lookup fails.
        """
        outcome = self._exchange.token(token, self._gate.environment.wall_ms())
        if isinstance(outcome, ServerChallenge):
            return outcome.message
        if isinstance(outcome, LoginAccepted):
            self._accept(outcome)
            return outcome.message
        if isinstance(outcome, LookupNeeded):
            reason = "a mechanism that looks up keys needs SaslHandshake version 1"
        else:
            assert isinstance(outcome, LoginRefused)
            reason = outcome.reason
        self._fail(reason, False)
        return None

    def unexpected(self, context: RequestContext, request: object | None) -> object:
        """Refuse a request of another API that arrived within the exchange, and then end the connection. The error is
        in the response of that API. `request` is None if it was not decoded.
        """
        refusal = self._exchange.unexpected(api_type(context.route.name))
        if getattr(request, "acks", None) == 0:  # A Produce that wants no answer.
            self._count_failure()
            self._close(refusal.reason)
            return None
        if request is None:
            response = refused_unread(context.route.response_class, context.version, refusal.error, refusal.message)
        else:
            response = refused(request, context.version, refusal.error, refusal.message)
        return self._fail(refusal.reason, response)

    # Outcomes

    def _response(self, outcome: TokenOutcome) -> SaslAuthenticateResponse | Pending[SaslAuthenticateResponse]:
        match outcome:
            case ServerChallenge(message):
                return SaslAuthenticateResponse(auth_bytes=message)
            case LoginAccepted(message, _, session_ms):
                self._accept(outcome)
                return SaslAuthenticateResponse(auth_bytes=message, session_lifetime_ms=session_ms)
            case IllegalRequest(message):
                return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=message)
            case LoginRefused(error, message, reason):
                return self._fail(reason, SaslAuthenticateResponse(error_code=error, error_message=message))
            case LookupNeeded():
                raise AssertionError("a mechanism looks something up once in an exchange")

    async def _look_up(self, what: object, reply: Pending[SaslAuthenticateResponse]) -> None:
        found = await self._gate.lookup(what)
        outcome = self._exchange.found(found, self._gate.environment.wall_ms())
        response = self._response(outcome)
        if isinstance(response, Pending):  # The lookup was refused: the connection stays held until it is closed.
            delayed: asyncio.Future[SaslAuthenticateResponse] = self._gate.loop.create_future()
            response.listen(delayed.set_result)
            response = await delayed
        reply.complete(response)

    def _accept(self, accepted: LoginAccepted) -> None:
        gate, connection = self._gate, self._connection
        gate.counts.count(self._exchange.mechanism_name, is_renewal=accepted.is_renewal, has_failed=False)
        self._end_deadline()
        if connection is None:
            return
        connection.access = gate.access_of(accepted.principal, connection.client_host)
        connection.routes = connection.listener.routes
        connection.request_size_max = self._request_size_max
        connection.hook = None
        if accepted.session_ms:
            self._session_timer = gate.loop.call_later(accepted.session_ms / 1000, self._expired)

    def _end_session(self) -> None:
        """Cancel the timer of the session: while a session is renewed, `LOGIN_S` limits the renewal instead."""
        if self._session_timer is not None:
            self._session_timer.cancel()
            self._session_timer = None

    def _expired(self) -> None:
        """End the session because its time is over: from now on only SaslHandshake is served."""
        self._exchange.expire()
        self._serve_only(SASL_HANDSHAKE)

    def _fail(self, reason: str, response: Response) -> Pending[Response]:
        """Fail the authentication: no further request is handled, and the connection ends after the response.

        Returns a `Pending` that completes with the response after a pause, so that passwords cannot be guessed fast.
        """
        gate = self._gate
        self._count_failure()
        if self._connection is not None:
            self._connection.hold()
        reply: Pending[Response] = Pending(waits_for=AUTHENTICATION)
        gate.loop.call_later(gate.settings.failure_delay_ms / 1000, self._end, reply, response, reason)
        return reply

    def _count_failure(self) -> None:
        self._end_deadline()
        is_renewal = self._exchange.principal is not None
        self._gate.counts.count(self._exchange.mechanism_name or "none", is_renewal=is_renewal, has_failed=True)

    def _time_out(self) -> None:
        self._count_failure()
        if self._connection is not None:
            self._connection.close(f"the login took longer than {LOGIN_S} s")

    def _end_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _end(self, reply: Pending[Response], response: Response, reason: str) -> None:
        reply.complete(response)
        self._close(reason)

    def _close(self, reason: str) -> None:
        connection = self._connection
        if connection is not None:
            mechanism = self._exchange.mechanism_name
            connection.close(f"authentication failed{f' ({mechanism})' if mechanism else ''}: {reason}")

    # The served APIs

    def _serve_only(self, *keys: int) -> None:
        """Serve only the APIs with these keys, and only requests of at most `receive_size_max` bytes."""
        connection = self._connection
        if connection is not None:
            all_routes = connection.listener.routes
            connection.routes = {key: all_routes[key] for key in keys}
            connection.request_size_max = min(self._request_size_max, self._gate.settings.receive_size_max)
            connection.hook = None


def _refuse(context: RequestContext, request: object | None) -> object:
    """The handler of every API but SaslHandshake and SaslAuthenticate within an exchange: refuses the request."""
    authentication = context.connection.authentication
    assert isinstance(authentication, SaslAuthentication), "only an exchange has these routes"
    return authentication.unexpected(context, request)


def api_type(name: str) -> str:
    """The name of an API in Apache Kafka's messages: CREATE_TOPICS for CreateTopics."""
    return "".join(f"_{each}" if each.isupper() and index else each for index, each in enumerate(name)).upper()
