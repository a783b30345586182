"""The state machine of a connection's SASL exchange, without I/O: the input that each state allows, and the result.

                    handshake v1            token                        session over
    GREETING ────────────────────▶ TOKENS ─────────────▶ AUTHENTICATED ──────────────▶ EXPIRED
        │ handshake v0                ▲   ◀──────────────────┘ handshake                  │
        └─────────────▶ RAW ──────────┼─────token────────────▶│     (renewal)             │
                                      └───────────────────────────────────────────────────┘ handshake

A failure in GREETING, TOKENS or RAW ends the connection (FAILED). A wrong request of a client that has authenticated is
answered with ILLEGAL_SASL_STATE and changes nothing. A client can renew a session that has an end: because of
`connections.max.reauth.ms` of the mechanism, or because the credential (a token) expires. The responses are those of
Apache Kafka 4.3.1, as observed. The state does not change while a mechanism waits for a lookup, whose result is passed
to `found`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Final, NamedTuple, TypeAlias

from moldau.protocol.errors import ErrorCode
from moldau.security.principal import Principal
from moldau.security.sasl.mechanism import Authenticated, Challenge, Failed, Mechanism, NeedsLookup, Step

RENEWAL_MS_MIN: Final = 1000
"""The minimum time (ms) between the beginnings of two renewals of a session."""
LATE_TOKEN: Final = "SaslAuthenticate request received after successful authentication"

MechanismMaker = Callable[[], Mechanism]


class ExchangeState(Enum):
    """The states of a SASL exchange."""

    GREETING = auto()
    TOKENS = auto()
    RAW = auto()
    AUTHENTICATED = auto()
    EXPIRED = auto()
    FAILED = auto()


class HandshakeAccepted(NamedTuple):
    """The SaslHandshake is accepted, because the listener offers its mechanism. The messages of that mechanism
    follow.
    """

    mechanisms: tuple[str, ...]
    is_raw: bool
    """Whether the messages come as frames without a header."""


class IllegalRequest(NamedTuple):
    """The request is not allowed in this state and is refused; the client stays authenticated."""

    message: str


class LoginRefused(NamedTuple):
    """The exchange has failed. The caller sends the error after a pause, and then closes the connection."""

    error: ErrorCode
    message: str
    """The message to the client."""
    reason: str
    """The reason for the log, without secrets."""


class ServerChallenge(NamedTuple):
    """A challenge of the mechanism: a message to which the client has to answer."""

    message: bytes


class LoginAccepted(NamedTuple):
    """The client has authenticated as this principal."""

    message: bytes
    principal: Principal
    session_ms: int
    """The time (ms) after which the client must have authenticated again; 0 for no limit."""
    is_renewal: bool


class LookupNeeded(NamedTuple):
    """The mechanism needs data before it can answer. The caller looks up `what`, and passes the result to `found`."""

    what: object


TokenOutcome: TypeAlias = ServerChallenge | LoginAccepted | LoginRefused | IllegalRequest | LookupNeeded


class SaslExchange:
    """The server's side of the exchange on one connection. `offered` makes the server's side of each mechanism that the
    listener offers.
    """

    def __init__(self, offered: Mapping[str, MechanismMaker], reauth_ms_max: Mapping[str, int]) -> None:
        self._offered = offered
        self._reauth_ms_max = reauth_ms_max
        self.state = ExchangeState.GREETING
        self.mechanism_name = ""
        self.principal: Principal | None = None
        """The principal of the last successful authentication."""
        self._mechanism: Mechanism | None = None
        self._renewed_at_ms: int | None = None
        self._expires = False
        """Whether the session that began with the last successful authentication expires."""

    def handshake(self, mechanism: str, version: int, now_ms: int) -> HandshakeAccepted | LoginRefused | IllegalRequest:
        """Handle a SaslHandshake. `now_ms` is the monotonic time in ms."""
        return _HANDSHAKES[self.state](self, mechanism, version, now_ms)

    def token(self, message: bytes, wall_ms: int) -> TokenOutcome:
        """Handle a message of the client's mechanism, from a SaslAuthenticate request or from a frame without a header.

        `wall_ms` is compared with the expiry of credentials.
        """
        if self.state in (ExchangeState.TOKENS, ExchangeState.RAW):
            assert self._mechanism is not None
            return self._stepped(self._mechanism.step(message), wall_ms)
        if self.state is ExchangeState.AUTHENTICATED:
            return IllegalRequest(LATE_TOKEN)
        return self._refuse(ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate came before SaslHandshake")

    def found(self, result: object, wall_ms: int) -> TokenOutcome:
        """Continue the exchange with the result of the lookup for which `LookupNeeded` was returned."""
        assert self._mechanism is not None
        return self._stepped(self._mechanism.on_lookup_result(result), wall_ms)

    def unexpected(self, api_type: str) -> LoginRefused:
        """Fail the exchange because a request of another API arrived in it."""
        text = f"Unexpected Kafka request of type {api_type} during SASL authentication."
        return self._refuse(ErrorCode.ILLEGAL_SASL_STATE, text)

    def expire(self) -> None:
        """End the session because its time is over. The client may only authenticate again."""
        if self.state is ExchangeState.AUTHENTICATED:
            self.state = ExchangeState.EXPIRED

    # Handshakes

    def _begin(self, mechanism: str, version: int, now_ms: int) -> HandshakeAccepted | LoginRefused | IllegalRequest:
        make = self._offered.get(mechanism)
        names = tuple(self._offered)
        if make is None:
            text = f"the client asks for mechanism {mechanism[:64]!r}, and {', '.join(names)} are offered"
            return self._refuse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, text)
        self.mechanism_name = mechanism
        self._mechanism = make()
        self.state = ExchangeState.RAW if version == 0 else ExchangeState.TOKENS
        return HandshakeAccepted(names, version == 0)

    def _begin_renewal(
        self, mechanism: str, version: int, now_ms: int
    ) -> HandshakeAccepted | LoginRefused | IllegalRequest:
        since = self._renewed_at_ms
        if not self._expires or (since is not None and now_ms - since < RENEWAL_MS_MIN):
            return IllegalRequest("")
        self._renewed_at_ms = now_ms
        if mechanism != self.mechanism_name:
            text = f"the client authenticates again with {mechanism[:64]!r} after {self.mechanism_name}"
            return self._refuse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, text)
        return self._begin(mechanism, version, now_ms)

    def _too_many(self, mechanism: str, version: int, now_ms: int) -> HandshakeAccepted | LoginRefused | IllegalRequest:
        return self._refuse(ErrorCode.ILLEGAL_SASL_STATE, "a second SaslHandshake within one exchange")

    # Tokens

    def _stepped(self, step: Step, wall_ms: int) -> TokenOutcome:
        match step:
            case Challenge(message):
                return ServerChallenge(message)
            case NeedsLookup(what):
                return LookupNeeded(what)
            case Failed(message, reason):
                return self._refuse(ErrorCode.SASL_AUTHENTICATION_FAILED, reason, message)
            case Authenticated():
                return self._authenticated(step, wall_ms)

    def _authenticated(self, step: Authenticated, wall_ms: int) -> TokenOutcome:
        before, principal = self.principal, step.principal
        if before is not None and principal[:2] != before[:2]:
            text = (
                f"Cannot change principals during re-authentication from {before.type}.{before.name}: "
                f"{principal.type}.{principal.name}"
            )
            return self._refuse(ErrorCode.SASL_AUTHENTICATION_FAILED, text, text)
        session_ms = self._reauth_ms_max.get(self.mechanism_name, 0)
        if step.expires_at_ms is not None:
            left_ms = step.expires_at_ms - wall_ms
            if left_ms <= 0:
                return self._refuse(ErrorCode.SASL_AUTHENTICATION_FAILED, "the credential has expired")
            session_ms = min(session_ms, left_ms) if session_ms else left_ms
        self.state = ExchangeState.AUTHENTICATED
        self.principal = principal
        self._mechanism = None
        self._expires = session_ms > 0
        return LoginAccepted(step.message, principal, session_ms, before is not None)

    def _refuse(self, error: ErrorCode, reason: str, message: str = "") -> LoginRefused:
        self.state = ExchangeState.FAILED
        self._mechanism = None
        return LoginRefused(error, message or reason, reason)


_HANDSHAKES: Final[
    dict[ExchangeState, Callable[[SaslExchange, str, int, int], HandshakeAccepted | LoginRefused | IllegalRequest]]
] = {
    ExchangeState.GREETING: SaslExchange._begin,
    ExchangeState.TOKENS: SaslExchange._too_many,
    ExchangeState.RAW: SaslExchange._too_many,
    ExchangeState.AUTHENTICATED: SaslExchange._begin_renewal,
    ExchangeState.EXPIRED: SaslExchange._begin_renewal,
    ExchangeState.FAILED: SaslExchange._too_many,
}
