"""A SASL mechanism on the side of the server: a port of one method.

bytes of SaslAuthenticate ──▶ step ──▶ Challenge     the client answers it with a further message
                                   ├─▶ Authenticated
                                   └─▶ Failed        the connection ends after the error was sent
                                   └─▶ NeedsLookup   the shell looks something up, then calls `found`
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple, TypeAlias

from security.principal import Principal


class Challenge(NamedTuple):
    """The exchange goes on."""

    message: bytes


class Authenticated(NamedTuple):
    """The exchange is over, and the client is the principal."""

    message: bytes
    """The last message to the client."""
    principal: Principal
    expires_at_ms: int | None = None
    """When the credential ends (wall clock); None where it does not."""


class Failed(NamedTuple):
    """The exchange is over. Which part of the credentials was wrong is told to the operator alone."""

    message: str
    """For the client: the same for an unknown user and for a wrong password."""
    reason: str
    """For the log of the broker; without secrets."""


class NeedsLookup(NamedTuple):
    """Something has to be fetched before the decision, as the keys of an identity provider. It takes time, so the shell
    does it, outside of the event loop where it computes for long, then calls `Mechanism.found`."""

    what: object


Step: TypeAlias = Challenge | Authenticated | Failed | NeedsLookup


class Mechanism(ABC):
    """One exchange with one client."""

    @abstractmethod
    def step(self, message: bytes) -> Step:
        """The answer to a message of the client. Hostile bytes give `Failed`, never an exception."""

    def found(self, result: object) -> Step:
        """The answer once what `NeedsLookup` asked for is there."""
        raise AssertionError(f"{type(self).__name__} looks nothing up")
