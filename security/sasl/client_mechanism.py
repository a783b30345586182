"""A SASL mechanism on the side of the client: this node logs in to another one.

first ──▶ message ──▶ server ──▶ answer(challenge) ──▶ message ──▶ … ──▶ None: nothing more is to be sent
                                                   └─▶ LoginFailed
"""

from __future__ import annotations

from abc import ABC, abstractmethod


class LoginFailed(Exception):
    """The server did what the mechanism forbids, or does not know the password. The text holds no secret."""


class ClientMechanism(ABC):
    """One exchange with one server. The server accepts with its last message, which `answer` must have seen too."""

    name: str
    """As SaslHandshake names the mechanism."""

    @abstractmethod
    def first(self) -> bytes:
        """The first message to the server."""

    @abstractmethod
    def answer(self, challenge: bytes) -> bytes | None:
        """The answer to a message of the server, None where the exchange is over. Raises `LoginFailed`."""
