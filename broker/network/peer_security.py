"""The security of this node's connections to others: TLS and login, as the listener of the peer asks."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from broker.network.authentication.peer_login import ClientMechanismMaker
from broker.network.tls.following import FollowedTls
from broker.network.tls.handshakes import Handshakes
from broker.network.tls.stream import SecuredProtocol, TlsStream


class NotSecured(Exception):
    """The peer's certificate cannot be trusted, or the peer does not speak TLS."""


@dataclass(frozen=True, slots=True)
class NodeTls:
    """TLS of one listener, with what all connections of the node share."""

    tls: FollowedTls
    handshakes: Handshakes
    buffer: memoryview
    """Takes what arrives encrypted, for all streams of the loop."""


@dataclass(frozen=True, slots=True)
class PeerSecurity:
    """How this node talks to the listener of its peers."""

    tls: NodeTls | None
    mechanism: ClientMechanismMaker | None
    """Makes the client's side of the SASL mechanism; None where there is no login."""

    def secured(self, link: SecuredProtocol, host: str, loop: asyncio.AbstractEventLoop) -> SecuredLink | None:
        """A link to a host under TLS; None where there is no TLS."""
        return None if self.tls is None else SecuredLink(self.tls, link, host, loop)


class SecuredLink:
    """A link under TLS; `handshake` is done once the peer is known, and raises `NotSecured` where it is not."""

    def __init__(self, tls: NodeTls, link: SecuredProtocol, host: str, loop: asyncio.AbstractEventLoop) -> None:
        self.handshake: asyncio.Future[None] = loop.create_future()
        self._tls = tls.tls
        self.stream = TlsStream(link, self, self._tls.client_context(), tls.handshakes, tls.buffer, host)

    # What the stream says

    def secured(self, stream: TlsStream) -> None:
        self._tls.trust(self)
        if not self.handshake.done():
            self.handshake.set_result(None)

    def not_secured(self, stream: TlsStream, reason: str) -> None:
        if not self.handshake.done():
            self.handshake.set_exception(NotSecured(f"the TLS handshake failed: {reason}"))

    def lost(self, stream: TlsStream) -> None:
        self._tls.forget(self)

    # What the trust store says

    def trusted_by(self) -> bytes | None:
        return self.stream.trusted_by()

    def distrusted(self) -> None:
        self.stream.abort()
