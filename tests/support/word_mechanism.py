"""A small SASL mechanism for tests: a greeting, then `name:word`; `look` has the name looked up instead."""

from __future__ import annotations

from typing import Final

from moldau.security.principal import USER, Principal
from moldau.security.sasl.mechanism import (
    Authenticated,
    Challenge,
    ClientMechanism,
    Failed,
    LoginFailed,
    Mechanism,
    NeedsLookup,
    Step,
)

SECRET: Final = "open sesame"


def word(name: str) -> bytes:
    """The message that logs a user in."""
    return f"{name}:{SECRET}".encode()


class WordMechanism(Mechanism):
    """The server's side."""

    def __init__(self, expires_at_ms: int | None = None) -> None:
        self._expires_at_ms = expires_at_ms
        self._is_greeted = False

    def step(self, message: bytes) -> Step:
        if message == b"look":
            return NeedsLookup("words")
        if not self._is_greeted:
            self._is_greeted = True
            return Challenge(b"who?") if message == b"hello" else Failed("Authentication failed", "no greeting")
        name, _, given = message.decode("utf-8", "replace").partition(":")
        return self.on_lookup_result(name) if given == SECRET else self.on_lookup_result(None)

    def on_lookup_result(self, result: object) -> Step:
        if not isinstance(result, str):
            return Failed("Authentication failed", "the word is wrong")
        return Authenticated(b"welcome", Principal(USER, result), self._expires_at_ms)


class WordClient(ClientMechanism):
    """The client's side."""

    name = "WORD"

    def __init__(self, user: str, *, knows: bool = True) -> None:
        self._user = user
        self._knows = knows

    def first(self) -> bytes:
        return b"hello"

    def answer(self, challenge: bytes) -> bytes | None:
        if challenge == b"who?":
            return word(self._user) if self._knows else b"mallory:guess"
        if challenge == b"welcome":
            return None
        raise LoginFailed(f"the server says {challenge!r}")
