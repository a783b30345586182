"""The SASL mechanism PLAIN (RFC 4616): user name and password in one message.

    authzid NUL authcid NUL password

The password is sent in clear text, so the mechanism should be used over TLS.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from hmac import compare_digest
from typing import Final

from moldau.security.principal import USER, Principal
from moldau.security.sasl.jaas import LoginModule
from moldau.security.sasl.mechanism import Authenticated, ClientMechanism, Failed, LoginFailed, Mechanism, Step

NAME: Final = "PLAIN"
OPTION_PREFIX: Final = "user_"
"""The prefix of the options of the login module that name users. The user's name follows it; the value is the password.
"""
INVALID: Final = "Authentication failed: Invalid username or password"
OTHER_IDENTITY: Final = "Authentication failed: Client requested an authorization id that is different from username"


class PlainUsers:
    """The users of a listener and their passwords. Its `repr` shows no password."""

    __slots__ = ("_digests",)

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._digests = {name: _digest(password) for name, password in passwords.items()}

    @classmethod
    def of_login_module(cls, module: LoginModule) -> PlainUsers:
        """The users that the options of a login module name."""
        return cls(
            {
                option.removeprefix(OPTION_PREFIX): value
                for option, value in module.options.items()
                if option.startswith(OPTION_PREFIX)
            }
        )

    def has(self, name: str, password: str) -> bool:
        """Whether `password` is the password of the user. The check takes the same time for an unknown user."""
        known = self._digests.get(name)
        is_equal = compare_digest(_NO_DIGEST if known is None else known, _digest(password))
        return is_equal and known is not None

    def __repr__(self) -> str:
        return f"PlainUsers of {len(self._digests)}"


def _digest(password: str) -> bytes:
    """The digest of a password. Digests are compared in place of passwords, so that the duration does not reveal a
    password's length.
    """
    return sha256(password.encode("utf-8", "surrogatepass")).digest()


_NO_DIGEST: Final = bytes(32)


class PlainServer(Mechanism):
    """The server's side of one PLAIN exchange, which has a single message."""

    def __init__(self, users: PlainUsers) -> None:
        self._users = users

    def step(self, message: bytes) -> Step:
        try:
            tokens = bytes(message).decode("utf-8").split("\0")
        except UnicodeDecodeError:
            return Failed("Invalid SASL/PLAIN response: it is not valid UTF-8", "the message is not valid UTF-8")
        if len(tokens) != 3:
            text = f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(tokens)}"
            return Failed(text, f"the message has {len(tokens)} parts")
        authorization_id, name, password = tokens
        if not name:
            return Failed("Authentication failed: username not specified", "the message has no user")
        if not password:
            return Failed("Authentication failed: password not specified", f"user {name!r} gave no password")
        if not self._users.has(name, password):
            return Failed(INVALID, f"user {name!r} is unknown or its password is wrong")
        if authorization_id not in ("", name):
            return Failed(OTHER_IDENTITY, f"user {name!r} asked to act as {authorization_id!r}")
        return Authenticated(b"", Principal(USER, name))


class PlainClient(ClientMechanism):
    """The client's side of one PLAIN exchange."""

    name = NAME

    def __init__(self, username: str, password: str) -> None:
        self._message = f"\0{username}\0{password}".encode()

    def first(self) -> bytes:
        return self._message

    def answer(self, challenge: bytes) -> bytes | None:
        if challenge:
            raise LoginFailed("the server continues an exchange that PLAIN ends with its first message")
        return None
