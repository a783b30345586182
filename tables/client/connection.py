"""A connection to a broker: TLS and SASL if the settings ask for them, then one request at a time."""

from __future__ import annotations

import socket
import ssl
from typing import Final, TypeVar, cast

from moldau.protocol.errors import ErrorCode
from moldau.protocol.frames import FRAME_SIZE_FORMAT, correlation_id_of, request_frame, response_of, size_prefixed
from moldau.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from moldau.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.schema import spec_of
from moldau.security.sasl.mechanism import LoginFailed
from moldau.tables.client.settings import Address, ConnectionSettings
from moldau.tables.refusals import Refused

T = TypeVar("T")
FRAME_SIZE_MAX: Final = 1 << 30
CERTIFICATE_ALERTS: Final = (
    "UNKNOWN_CA",
    "CERTIFICATE_REQUIRED",
    "BAD_CERTIFICATE",
    "UNSUPPORTED_CERTIFICATE",
    "CERTIFICATE_REVOKED",
    "CERTIFICATE_EXPIRED",
    "CERTIFICATE_UNKNOWN",
    "ACCESS_DENIED",
)
"""The alerts of TLS (RFC 8446, section 6.2) about a certificate, as OpenSSL names them."""
CONNECTION_CLOSED_TEXT: Final = "the broker closed the connection"
RESPONSE_WAIT_EXTRA_MS: Final = 10_000
"""The time (ms) that is added to the timeout of a request that the broker may hold for some time."""


class Disconnected(OSError):
    """The broker cannot be reached, did not answer in time, or closed the connection. A request that was sent may have
    been carried out."""


class HandshakeFailed(Disconnected):
    """The TLS handshake failed: the broker broke it off, or its listener has no TLS. `reason`: OpenSSL's words."""

    def __init__(self, address: Address, problem: ssl.SSLError) -> None:
        self.reason = problem.reason or str(problem)
        super().__init__(f"{address}: the TLS handshake failed: {self.reason}")


class LoginRefused(Refused):
    """The broker does not let the client log in."""


class BrokerNotTrusted(LoginRefused):
    """The client does not trust the broker's certificate. `problem` says why."""

    def __init__(self, address: Address, problem: ssl.SSLCertVerificationError) -> None:
        super().__init__(f"{address}: its certificate is not trusted: {problem.verify_message.rstrip('.')}")
        self.problem = problem


class CertificateRefused(LoginRefused):
    """The broker refuses the client's certificate, or requires one. `alert` is the broker's TLS alert."""

    def __init__(self, address: Address, alert: str) -> None:
        super().__init__(
            f"{address}: the broker refuses the certificate of the client ({alert}): ssl.keystore.location names one "
            "that it knows"
        )


class BrokerConnection:
    """A connection to a broker, with at most one request in flight. Only one thread may use it."""

    def __init__(self, address: Address, settings: ConnectionSettings) -> None:
        """Connect and log in. Raises `Disconnected`, and `LoginRefused` if the broker or the client refuses the
        other."""
        self.address = address
        self._settings = settings
        self._timeout_s = settings.request_timeout_ms / 1000
        self._count = 0
        self._client_id = settings.client_id.encode()
        try:
            self._socket = socket.create_connection(address, timeout=self._timeout_s)
        except OSError as problem:
            raise Disconnected(f"{address}: {problem.strerror or problem}") from None
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if settings.is_encrypted:
                self._socket = self._wrapped()
            self._versions = self._ask_versions()
            if settings.logs_in:
                self._log_in()
        except BaseException:
            self.close()
            raise

    def ask(self, request: object, reply: type[T], version_max: int, *, wait_ms: int = 0) -> T:
        """Send a request, and return its response. Uses the highest version that client and broker support, at most
        `version_max`.

        `wait_ms`: how long the broker may hold the request. Raises `Disconnected`, after which the connection is
        closed, and `MalformedMessage`.
        """
        spec = spec_of(type(request))
        return cast(T, self._exchange(request, self.version_of(spec.key, version_max), wait_ms))

    def version_of(self, api_key: int | None, version_max: int) -> int:
        """The highest version of an API that client and broker support, at most `version_max`. Raises `Refused` if
        there is none."""
        lowest, highest = self._versions.get(api_key or 0, (0, -1))
        version = min(highest, version_max)
        if version < lowest:
            raise Refused(f"{self.address}: the broker has versions {lowest} to {highest} of API {api_key}")
        return version

    def close(self) -> None:
        self._socket.close()

    def _wrapped(self) -> ssl.SSLSocket:
        """The socket after the TLS handshake. With TLS 1.2 a refused certificate of the client ends the handshake, with
        TLS 1.3 the first request.
        """
        context = self._settings.tls_context()
        try:
            return context.wrap_socket(self._socket, server_hostname=self.address.host)
        except ssl.SSLCertVerificationError as problem:
            raise BrokerNotTrusted(self.address, problem) from None
        except ssl.SSLError as problem:
            alert = certificate_alert(problem)
            if alert:
                raise CertificateRefused(self.address, alert) from None
            raise HandshakeFailed(self.address, problem) from None
        except OSError as problem:
            raise Disconnected(f"{self.address}: {problem.strerror or problem}") from None

    def _ask_versions(self) -> dict[int, tuple[int, int]]:
        reply = cast(ApiVersionsResponse, self._exchange(ApiVersionsRequest(), 0, 0))
        return {each.api_key: (each.min_version, each.max_version) for each in reply.api_keys}

    def _log_in(self) -> None:
        mechanism = self._settings.new_login_mechanism()
        shake = self.ask(SaslHandshakeRequest(mechanism=mechanism.name), SaslHandshakeResponse, 1)
        if shake.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            raise LoginRefused(
                f"{self.address}: users do not log in at this listener: its security.protocol has no SASL"
            )
        if shake.error_code:
            raise LoginRefused(f"{self.address}: the broker has {', '.join(shake.mechanisms)}, not {mechanism.name}")
        message: bytes | None = mechanism.first()
        while message is not None:
            reply = self.ask(SaslAuthenticateRequest(auth_bytes=message), SaslAuthenticateResponse, 1)
            if reply.error_code:
                raise LoginRefused(f"{self.address}: the login failed: {reply.error_message}")
            try:
                message = mechanism.answer(bytes(reply.auth_bytes))
            except LoginFailed as problem:
                raise LoginRefused(f"{self.address}: the login failed: {problem}") from None

    def _exchange(self, request: object, version: int, wait_ms: int) -> object:
        self._count += 1
        frame = request_frame(request, version, self._count, self._client_id)
        try:
            self._socket.settimeout(self._timeout_s + (wait_ms + RESPONSE_WAIT_EXTRA_MS if wait_ms else 0) / 1000)
            self._socket.sendall(size_prefixed(frame))
            (size,) = FRAME_SIZE_FORMAT.unpack(self._read(FRAME_SIZE_FORMAT.size))
            if not 4 <= size <= FRAME_SIZE_MAX:
                raise Disconnected(f"a reply of {size} bytes")
            answer = self._read(size)
        except ssl.SSLError as problem:
            self.close()
            alert = certificate_alert(problem)
            if alert:
                raise CertificateRefused(self.address, alert) from None
            raise Disconnected(f"{self.address}: {problem.reason or problem}") from None
        except OSError as problem:
            self.close()
            raise Disconnected(f"{self.address}: {problem.strerror or problem}") from None
        except BaseException:
            self.close()  # After Ctrl-C the next request would get the answer to this one.
            raise
        if correlation_id_of(answer) != self._count:
            self.close()
            raise MalformedMessage(f"{self.address}: a reply to another request")
        return response_of(type(request), version, answer)

    def _read(self, size: int) -> bytes:
        received = bytearray(size)
        view, position = memoryview(received), 0
        while position < size:
            count = self._socket.recv_into(view[position:])
            if not count:
                raise Disconnected(CONNECTION_CLOSED_TEXT)
            position += count
        return bytes(received)


def certificate_alert(problem: ssl.SSLError) -> str:
    """Return the broker's TLS alert about the client's certificate as words. Returns an empty text for any other
    problem."""
    _, is_alert, words = (problem.reason or "").partition("_ALERT_")
    return words.lower().replace("_", " ") if is_alert and words in CERTIFICATE_ALERTS else ""
