"""The security of this node's connections to other nodes: TLS and login, as the peer's listener requires.

The login is a SaslHandshake, then one SaslAuthenticate for each message of the mechanism.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from moldau.protocol.errors import ErrorCode
from moldau.protocol.late_dataclass import dataclass
from moldau.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from moldau.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from moldau.security.sasl.mechanism import ClientMechanism, LoginFailed

if TYPE_CHECKING:
    from moldau.broker.network.tls.contexts import ReloadingTls
    from moldau.broker.network.tls.handshakes import Handshakes
    from moldau.broker.network.tls.stream import SecuredProtocol, TlsStream

HANDSHAKE_VERSION: Final = 1
AUTHENTICATE_VERSION: Final = 2
ClientMechanismMaker = Callable[[], ClientMechanism]
"""Makes the client's side of one SASL exchange. Raises `LoginFailed` if this node has no credentials now."""
Versions = Mapping[int, tuple[int, int]]


class NotSecured(Exception):
    """Raised if the peer's certificate cannot be trusted, or if the peer does not speak TLS."""


@dataclass(frozen=True, slots=True)
class NodeTls:
    """The TLS settings and contexts of one listener, with the resources that all TLS connections of the node share."""

    tls: ReloadingTls
    handshakes: Handshakes
    buffer: memoryview
    """The buffer for received encrypted bytes, which all streams of the event loop share."""


@dataclass(frozen=True, slots=True)
class PeerSecurity:
    """The security of connections to the listener of this node's peers: TLS or not, and the login."""

    tls: NodeTls | None
    mechanism: ClientMechanismMaker | None
    """Makes the client's side of the SASL mechanism; None if this node does not log in."""

    def secured(self, link: SecuredProtocol, host: str, loop: asyncio.AbstractEventLoop) -> SecuredLink | None:
        """Wrap `link` in TLS, for a connection to a host; None if the listener has no TLS."""
        return None if self.tls is None else SecuredLink(self.tls, link, host, loop)


class SecuredLink:
    """A connection to another node under TLS.

    `handshake` completes when the handshake succeeds, and raises `NotSecured` if the peer is not trusted.
    """

    def __init__(self, tls: NodeTls, link: SecuredProtocol, host: str, loop: asyncio.AbstractEventLoop) -> None:
        self.handshake: asyncio.Future[None] = loop.create_future()
        self._tls = tls.tls
        from moldau.broker.network.tls.stream import TlsStream

        self.stream = TlsStream(link, self, self._tls.client_context(), tls.handshakes, tls.buffer, host)

    # Called by the stream

    def secured(self, stream: TlsStream) -> None:
        refusal = self._tls.register(self, stream.peer_chain())
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


class LoginChannel(Protocol):
    """The channel over which this node logs in to a peer."""

    def send_login(self, request: object, reply: Callable[[object], None], version: int) -> None: ...

    def logged_in(self, versions: Versions, session_ms: int) -> None: ...

    def login_failed(self, reason: str) -> None: ...


class PeerLogin:
    """This node's logins over one connection: the first one, and each re-authentication."""

    def __init__(self, channel: LoginChannel, make: ClientMechanismMaker, versions: Versions) -> None:
        self._channel = channel
        self._make = make
        self._versions = versions
        self._mechanism: ClientMechanism | None = None

    def begin(self) -> None:
        """Log in, or re-authenticate. The channel is told of the result by `logged_in` or `login_failed`."""
        try:
            self._mechanism = self._make()
        except LoginFailed as failure:
            self._channel.login_failed(str(failure))
            return
        request = SaslHandshakeRequest(mechanism=self._mechanism.name)
        self._channel.send_login(request, self._offered, HANDSHAKE_VERSION)

    def _offered(self, response: object) -> None:
        if not isinstance(response, SaslHandshakeResponse):
            return  # The connection is lost, and its channel has been notified.
        assert self._mechanism is not None
        if response.error_code != ErrorCode.NONE:
            offered = ", ".join(response.mechanisms) or "none"
            self._channel.login_failed(f"it refuses the mechanism {self._mechanism.name}; it offers {offered}")
            return
        self._send(self._mechanism.first())

    def _send(self, message: bytes) -> None:
        request = SaslAuthenticateRequest(auth_bytes=message)
        self._channel.send_login(request, self._answered, AUTHENTICATE_VERSION)

    def _answered(self, response: object) -> None:
        mechanism = self._mechanism
        if not isinstance(response, SaslAuthenticateResponse) or mechanism is None:
            return
        if response.error_code != ErrorCode.NONE:
            self._channel.login_failed(response.error_message or f"error {response.error_code}")
            return
        try:
            message = mechanism.answer(bytes(response.auth_bytes))
        except LoginFailed as failure:
            self._channel.login_failed(str(failure))
            return
        if message is not None:
            self._send(message)
            return
        self._mechanism = None
        self._channel.logged_in(self._versions, response.session_lifetime_ms)
