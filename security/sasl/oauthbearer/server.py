"""The server's side of OAUTHBEARER.

client's token ──▶ accepted: Authenticated      ──▶ refused: a challenge with the error, then Failed
               └─▶ its key is not known: NeedsLookup(KeysWanted) ──▶ found(KeySet) ──▶ as above
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from moldau.security.principal import USER, Principal
from moldau.security.sasl.mechanism import Authenticated, Challenge, Failed, Mechanism, NeedsLookup, Step
from moldau.security.sasl.oauthbearer.keys import KeySet
from moldau.security.sasl.oauthbearer.messages import MalformedBearer, parse_bearer, refusal_message
from moldau.security.sasl.oauthbearer.token import InvalidToken, TokenRules, UnknownKey, accept

NAME: Final = "OAUTHBEARER"
INVALID_TOKEN: Final = "invalid_token"


class KeysWanted(NamedTuple):
    """Asks for the key set of the provider, fetched anew unless it was fetched just before. The shell limits the rate
    of fetches, because a client chooses the key ids in its tokens.
    """

    key_id: str | None


class BearerServer(Mechanism):
    """One exchange with one client."""

    def __init__(self, rules: TokenRules, keys: KeySet, wall_clock_ms: Callable[[], int]) -> None:
        self._rules = rules
        self._keys = keys
        self._wall_clock_ms = wall_clock_ms
        self._token: str | None = None
        self._authorization_id = ""
        self._reason: str | None = None
        """The reason for which the token was refused.

        The client learns it from the challenge; the exchange ends with the client's answer.
        """

    def step(self, message: bytes) -> Step:
        if self._reason is not None:
            return Failed(refusal_message(INVALID_TOKEN).decode(), self._reason)
        if self._token is not None:
            return Failed("Authentication failed", "the client goes on after the end of the exchange")
        try:
            first = parse_bearer(message)
        except MalformedBearer as error:
            return Failed("Authentication failed: Invalid OAUTHBEARER client first message", str(error))
        self._token, self._authorization_id = first.token, first.authorization_id
        return self._decide(first.token, may_look_up=True)

    def found(self, result: object) -> Step:
        assert isinstance(result, KeySet) and self._token is not None, "the shell gives the keys that were asked for"
        self._keys = result
        return self._decide(self._token, may_look_up=False)

    def _decide(self, token: str, *, may_look_up: bool) -> Step:
        try:
            accepted = accept(token, self._rules, self._keys, self._wall_clock_ms())
        except UnknownKey as error:
            return NeedsLookup(KeysWanted(None)) if may_look_up else self._refuse(str(error))
        except InvalidToken as error:
            return self._refuse(str(error))
        if self._authorization_id not in ("", accepted.subject):
            reason = f"user {accepted.subject!r} asked to act as {self._authorization_id!r}"
            return Failed("Authentication failed: Client requested an authorization id", reason)
        return Authenticated(b"", Principal(USER, accepted.subject), accepted.expires_at_ms)

    def _refuse(self, reason: str) -> Challenge:
        self._reason = reason
        return Challenge(refusal_message(INVALID_TOKEN))
