"""The client's side of a SASL mechanism: this node logs in to another node.

first ──▶ message ──▶ server ──▶ answer(challenge) ──▶ message ──▶ … ──▶ None: nothing more is to be sent
                                                   └─▶ LoginFailed
"""

from __future__ import annotations

from abc import ABC, abstractmethod


class LoginFailed(Exception):
    """The login failed: the server violated the mechanism, or does not know the password. The text holds no secret."""


class ClientMechanism(ABC):
    """One exchange with one server.

    The exchange succeeds only after `answer` has also accepted the server's last message.
    """

    name: str
    """The name of the mechanism in SaslHandshake."""

    @abstractmethod
    def first(self) -> bytes:
        """The first message to the server."""

    @abstractmethod
    def answer(self, challenge: bytes) -> bytes | None:
        """The answer to a message of the server; None where the exchange is over. Raises `LoginFailed`."""
