"""The SASL exchange of one connection, without I/O: which input is allowed when, and what becomes of it.

                    handshake v1            token                        session over
    GREETING ────────────────────▶ TOKENS ─────────────▶ AUTHENTICATED ──────────────▶ EXPIRED
        │ handshake v0                ▲   ◀──────────────────┘ handshake                  │
        └─────────────▶ RAW ──────────┼─────token────────────▶│     (renewal)             │
                                      └───────────────────────────────────────────────────┘ handshake

Whatever fails in GREETING, TOKENS and RAW ends the connection (FAILED). A wrong request of a client that has
authenticated is answered with ILLEGAL_SASL_STATE and changes nothing. What is answered was observed of Apache Kafka
4.3.1. A mechanism that has to look something up leaves the state as it is until `found`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Final, NamedTuple, TypeAlias

from protocol.errors import ErrorCode
from security.principal import Principal
from security.sasl.mechanism import Authenticated, Challenge, Failed, Mechanism, NeedsLookup, Step

RENEWAL_MS_MIN: Final = 1000
"""A client may authenticate again once in this time."""
LATE_TOKEN: Final = "SaslAuthenticate request received after successful authentication"

MechanismMaker = Callable[[], Mechanism]


class ExchangeState(Enum):
    """Where the exchange is."""

    GREETING = auto()
    TOKENS = auto()
    RAW = auto()
    AUTHENTICATED = auto()
    EXPIRED = auto()
    FAILED = auto()


class Begun(NamedTuple):
    """The mechanism is offered; its messages follow."""

    mechanisms: tuple[str, ...]
    is_raw: bool
    """They come as frames without a header."""


class Mistaken(NamedTuple):
    """The request is refused, and the client stays authenticated."""

    message: str


class LoginRefused(NamedTuple):
    """The exchange failed: the client is told after a pause, then its connection ends."""

    error: ErrorCode
    message: str
    """For the client."""
    reason: str
    """For the log; without secrets."""


class Answered(NamedTuple):
    """The client answers this message with another."""

    message: bytes


class Accepted(NamedTuple):
    """The client is the principal."""

    message: bytes
    principal: Principal
    session_ms: int
    """Time after which the client must have authenticated again; 0 for no limit."""
    is_renewal: bool


class LookupWanted(NamedTuple):
    """Something has to be looked up before the answer; `found` takes it."""

    what: object


TokenOutcome: TypeAlias = Answered | Accepted | LoginRefused | Mistaken | LookupWanted


class SaslExchange:
    """`offered` makes a machine for each mechanism of the listener."""

    def __init__(self, offered: Mapping[str, MechanismMaker], reauth_ms_max: Mapping[str, int]) -> None:
        self._offered = offered
        self._reauth_ms_max = reauth_ms_max
        self.state = ExchangeState.GREETING
        self.mechanism_name = ""
        self.principal: Principal | None = None
        """That of the last authentication that succeeded."""
        self._mechanism: Mechanism | None = None
        self._renewed_at_ms: int | None = None

    def handshake(self, mechanism: str, version: int, now_ms: int) -> Begun | LoginRefused | Mistaken:
        """SaslHandshake; `now_ms` is monotonic."""
        return _HANDSHAKES[self.state](self, mechanism, version, now_ms)

    def token(self, message: bytes, wall_ms: int) -> TokenOutcome:
        """A message of the client, in SaslAuthenticate or in a frame of its own. `wall_ms` is compared with the end of
        credentials."""
        if self.state in (ExchangeState.TOKENS, ExchangeState.RAW):
            assert self._mechanism is not None
            return self._stepped(self._mechanism.step(message), wall_ms)
        if self.state is ExchangeState.AUTHENTICATED:
            return Mistaken(LATE_TOKEN)
        return self._refuse(ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate came before SaslHandshake")

    def found(self, result: object, wall_ms: int) -> TokenOutcome:
        """What was wanted has been looked up."""
        assert self._mechanism is not None
        return self._stepped(self._mechanism.found(result), wall_ms)

    def expire(self) -> None:
        """The session is over: the client may do nothing but authenticate again."""
        if self.state is ExchangeState.AUTHENTICATED:
            self.state = ExchangeState.EXPIRED

    # Handshakes

    def _begin(self, mechanism: str, version: int, now_ms: int) -> Begun | LoginRefused | Mistaken:
        make = self._offered.get(mechanism)
        names = tuple(self._offered)
        if make is None:
            text = f"the client asks for mechanism {mechanism[:64]!r}, and {', '.join(names)} are offered"
            return self._refuse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, text)
        self.mechanism_name = mechanism
        self._mechanism = make()
        self.state = ExchangeState.RAW if version == 0 else ExchangeState.TOKENS
        return Begun(names, version == 0)

    def _begin_renewal(self, mechanism: str, version: int, now_ms: int) -> Begun | LoginRefused | Mistaken:
        since = self._renewed_at_ms
        if not any(self._reauth_ms_max.values()) or (since is not None and now_ms - since < RENEWAL_MS_MIN):
            return Mistaken("")
        self._renewed_at_ms = now_ms
        if mechanism != self.mechanism_name:
            text = f"the client authenticates again with {mechanism[:64]!r} after {self.mechanism_name}"
            return self._refuse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, text)
        return self._begin(mechanism, version, now_ms)

    def _too_many(self, mechanism: str, version: int, now_ms: int) -> Begun | LoginRefused | Mistaken:
        return self._refuse(ErrorCode.ILLEGAL_SASL_STATE, "a second SaslHandshake within one exchange")

    # Tokens

    def _stepped(self, step: Step, wall_ms: int) -> TokenOutcome:
        match step:
            case Challenge(message):
                return Answered(message)
            case NeedsLookup(what):
                return LookupWanted(what)
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
        return Accepted(step.message, principal, session_ms, before is not None)

    def _refuse(self, error: ErrorCode, reason: str, message: str = "") -> LoginRefused:
        self.state = ExchangeState.FAILED
        self._mechanism = None
        return LoginRefused(error, message or reason, reason)


_HANDSHAKES: Final[dict[ExchangeState, Callable[[SaslExchange, str, int, int], Begun | LoginRefused | Mistaken]]] = {
    ExchangeState.GREETING: SaslExchange._begin,
    ExchangeState.TOKENS: SaslExchange._too_many,
    ExchangeState.RAW: SaslExchange._too_many,
    ExchangeState.AUTHENTICATED: SaslExchange._begin_renewal,
    ExchangeState.EXPIRED: SaslExchange._begin_renewal,
    ExchangeState.FAILED: SaslExchange._too_many,
}
