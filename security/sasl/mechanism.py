"""The interfaces of both sides of a SASL mechanism, each with one method for messages. The server's side:

bytes of SaslAuthenticate ──▶ step ──▶ Challenge     the client answers it with a further message
                                   ├─▶ Authenticated
                                   └─▶ Failed        the connection ends after the error was sent
                                   └─▶ NeedsLookup   the caller looks something up, then calls `on_lookup_result`

The client's side, with which this node logs in to another node:

first ──▶ message ──▶ server ──▶ answer(challenge) ──▶ message ──▶ … ──▶ None: nothing more is to be sent
                                                   └─▶ LoginFailed
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeAlias

from moldau.protocol.late_tuple import NamedTuple
from moldau.security.principal import Principal


class Challenge(NamedTuple):
    """The exchange continues: `message` is sent to the client."""

    message: bytes


class Authenticated(NamedTuple):
    """The exchange is complete: the client has proved to be the principal."""

    message: bytes
    """The last message to the client."""
    principal: Principal
    expires_at_ms: int | None = None
    """The time (wall clock, ms) at which the credential expires; None if it does not."""


class Failed(NamedTuple):
    """The exchange failed. Only the operator learns which part of the credentials was wrong."""

    message: str
    """The message to the client: the same for an unknown user and for a wrong password."""
    reason: str
    """The reason for the broker's log, without secrets."""


class NeedsLookup(NamedTuple):
    """The mechanism needs data before it decides, such as the keys of an identity provider.

    The caller fetches `what`, outside of the event loop if that blocks, then calls `Mechanism.on_lookup_result`.
    """

    what: object


Step: TypeAlias = Challenge | Authenticated | Failed | NeedsLookup


class Mechanism(ABC):
    """The server's side of one SASL exchange with a client."""

    @abstractmethod
    def step(self, message: bytes) -> Step:
        """Handle a message of the client. Malformed bytes give `Failed`, and raise no exception."""

    def on_lookup_result(self, result: object) -> Step:
        """Continue with the data that `NeedsLookup` asked for."""
        raise AssertionError(f"{type(self).__name__} looks nothing up")


class LoginFailed(Exception):
    """Raised if the login of this node to another node fails: the server violated the mechanism, or does not know the
    password. The message has no secret."""


class ClientMechanism(ABC):
    """The client's side of one SASL exchange with a server.

    The exchange succeeds only after `answer` has also accepted the server's last message.
    """

    name: str
    """The name of the mechanism in SaslHandshake."""

    @abstractmethod
    def first(self) -> bytes:
        """The first message to the server."""

    @abstractmethod
    def answer(self, challenge: bytes) -> bytes | None:
        """Answer a message of the server. Returns None if the exchange is over. Raises `LoginFailed`."""
