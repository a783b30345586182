"""The security of this node's connections to other nodes: TLS and login, as the peer's listener requires."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moldau.broker.network.authentication.peer_login import ClientMechanismMaker
    from moldau.broker.network.tls.following import FollowedTls
    from moldau.broker.network.tls.handshakes import Handshakes
    from moldau.broker.network.tls.stream import SecuredProtocol, TlsStream


class NotSecured(Exception):
    """The peer's certificate cannot be trusted, or the peer does not speak TLS."""


@dataclass(frozen=True, slots=True)
class NodeTls:
    """The TLS of one listener, with the resources that all connections of the node share."""

    tls: FollowedTls
    handshakes: Handshakes
    buffer: memoryview
    """The buffer for received encrypted bytes, shared by all streams of the loop."""


@dataclass(frozen=True, slots=True)
class PeerSecurity:
    """The security of connections to the listener of peers."""

    tls: NodeTls | None
    mechanism: ClientMechanismMaker | None
    """Makes the client's side of the SASL mechanism; None without a login."""

    def secured(self, link: SecuredProtocol, host: str, loop: asyncio.AbstractEventLoop) -> SecuredLink | None:
        """Put a link to a host under TLS; None where the connections are not encrypted."""
        return None if self.tls is None else SecuredLink(self.tls, link, host, loop)


class SecuredLink:
    """A link to another node under TLS.

    `handshake` completes when the handshake succeeds, and raises `NotSecured` where the peer is not trusted.
    """

    def __init__(self, tls: NodeTls, link: SecuredProtocol, host: str, loop: asyncio.AbstractEventLoop) -> None:
        self.handshake: asyncio.Future[None] = loop.create_future()
        self._tls = tls.tls
        from moldau.broker.network.tls.stream import TlsStream

        self.stream = TlsStream(link, self, self._tls.client_context(), tls.handshakes, tls.buffer, host)

    # Called by the stream

    def secured(self, stream: TlsStream) -> None:
        refusal = self._tls.trust(self, stream.peer_chain())
        if refusal is not None:
            self.not_secured(stream, refusal)
            stream.abort()
        elif not self.handshake.done():
            self.handshake.set_result(None)

    def not_secured(self, stream: TlsStream, reason: str) -> None:
        if not self.handshake.done():
            self.handshake.set_exception(NotSecured(f"the TLS handshake failed: {reason}"))

    def lost(self, stream: TlsStream) -> None:
        self._tls.forget(self)

    # Called by the trust store

    def distrusted(self) -> None:
        self.stream.abort()
