"""The login of this node to another node:

SaslHandshake, then one SaslAuthenticate for each message of the mechanism.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from moldau.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from moldau.security.sasl.client_mechanism import ClientMechanism, LoginFailed

HANDSHAKE_VERSION: Final = 1
AUTHENTICATE_VERSION: Final = 2

ClientMechanismMaker = Callable[[], ClientMechanism]
"""Makes the client's side of one exchange. Raises `LoginFailed` where this node has no credentials now."""
Versions = Mapping[int, tuple[int, int]]


class LoginChannel(Protocol):
    """The channel over which the login is sent."""

    def send_login(self, request: object, reply: Callable[[object], None], version: int) -> None: ...

    def logged_in(self, versions: Versions, session_ms: int) -> None: ...

    def login_failed(self, reason: str) -> None: ...


class PeerLogin:
    """The logins over one connection: the first one, and those that renew it."""

    def __init__(self, channel: LoginChannel, make: ClientMechanismMaker, versions: Versions) -> None:
        self._channel = channel
        self._make = make
        self._versions = versions
        self._mechanism: ClientMechanism | None = None

    def begin(self) -> None:
        """Log in, or log in again."""
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
