"""The security of a listener: TLS below its connections, SASL before other requests, and the resulting permissions.

PLAINTEXT        Connection                       anonymous
SSL              TlsStream ─▶ Connection          the principal of the client's certificate, or anonymous
SASL_PLAINTEXT   Connection, few routes           the principal of the exchange
SASL_SSL         TlsStream ─▶ the same            the principal of the exchange
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from moldau.broker.network.connection import Connection
from moldau.security.access import Access, Unrestricted
from moldau.security.principal import ANONYMOUS, Principal

if TYPE_CHECKING:
    from moldau.broker.network.peer_security import NodeTls
    from moldau.broker.network.route import Authentication
    from moldau.broker.network.tls.stream import TlsStream

TLS: Final = "SSL"
"""The name under which TLS handshakes are counted, in place of the name of a mechanism."""
AccessMaker = Callable[[Principal, str], Access]
"""Makes the permissions of a principal whose client is at a host."""
CertificatePrincipal = Callable[[bytes], Principal]
"""Maps a client's certificate, in DER, to its principal. Raises ValueError."""


class ListenerSecurity:
    """The security of one listener's connections: TLS, SASL, and the permissions of clients."""

    def __init__(
        self,
        access_of: AccessMaker,
        counts: AuthenticationCounts,
        *,
        entrance: NodeTls | None = None,
        login: Callable[[Connection], Authentication] | None = None,
        principal_of: CertificatePrincipal | None = None,
    ) -> None:
        """`entrance`: the TLS of the listener; None without TLS. `login` begins the SASL exchange of a connection; None
        without SASL. `principal_of` maps a client's certificate to its principal; None if a certificate gives no
        principal.
        """
        self.counts = counts
        self.access_of = access_of
        self.principal_of = principal_of
        self._entrance = entrance
        self._login = login

    def first_access(self, client_host: str) -> Access:
        return self.access_of(ANONYMOUS, client_host)

    @property
    def has_login(self) -> bool:
        """Whether clients log in by SASL."""
        return self._login is not None

    def authentication_of(self, connection: Connection) -> Authentication | None:
        return None if self._login is None else self._login(connection)

    def protocol_for(self, connection: Connection) -> Connection | TlsStream:
        """The protocol for a connection's transport: the connection itself, or the TLS stream around it."""
        if self._entrance is None:
            return connection
        return SecuredConnection(self, self._entrance, connection).stream


class SecuredConnection:
    """A client's connection under TLS.

    The client gets its principal from its certificate. The connection is closed when the authority of this certificate
    is not trusted any more.
    """

    def __init__(self, security: ListenerSecurity, entrance: NodeTls, connection: Connection) -> None:
        self._security = security
        self._tls = entrance.tls
        self._connection = connection
        from moldau.broker.network.tls.stream import TlsStream

        self.stream = TlsStream(connection, self, self._tls.server_context(), entrance.handshakes, entrance.buffer)

    # Called by the stream

    def secured(self, stream: TlsStream) -> None:
        security, connection = self._security, self._connection
        certificate = stream.peer_certificate()
        refusal = self._tls.register(self, stream.peer_chain())
        if refusal is not None:
            self.not_secured(stream, refusal)
            stream.close()
            return
        if security.principal_of is not None and certificate is not None:
            try:
                principal = security.principal_of(certificate)
            except ValueError as error:
                self.not_secured(stream, f"the client's certificate names no principal: {error}")
                stream.close()
                return
            connection.access = security.access_of(principal, connection.client_host)
        if connection.authentication is None:
            security.counts.count(TLS, is_renewal=False, has_failed=False)

    def not_secured(self, stream: TlsStream, reason: str) -> None:
        self._security.counts.count(TLS, is_renewal=False, has_failed=True)
        connection = self._connection
        connection.listener.closing_log.say(logging.INFO, connection.client_host, f"TLS failed: {reason}")

    def lost(self, stream: TlsStream) -> None:
        self._tls.forget(self)

    # Called by the trust store

    def distrusted(self) -> None:
        self._connection.close("the authority of the client's certificate is no longer trusted")


def plain_security() -> ListenerSecurity:
    """The security of a PLAINTEXT listener on a node without an authorizer: clients may do everything."""
    unrestricted = Unrestricted()
    return ListenerSecurity(lambda principal, host: unrestricted, AuthenticationCounts())


class AuthenticationCounts:
    """The numbers of successful and failed authentications at a listener since the start, by mechanism. TLS handshakes
    are under `TLS`.
    """

    def __init__(self) -> None:
        self.succeeded: dict[str, int] = {}
        self.failed: dict[str, int] = {}
        self.renewed: dict[str, int] = {}
        """The number of re-authentications, by mechanism."""
        self.not_renewed: dict[str, int] = {}
        """The number of failed re-authentications, by mechanism."""

    def count(self, mechanism: str, *, is_renewal: bool, has_failed: bool) -> None:
        """Count one authentication or re-authentication."""
        if is_renewal:
            of = self.not_renewed if has_failed else self.renewed
        else:
            of = self.failed if has_failed else self.succeeded
        of[mechanism] = of.get(mechanism, 0) + 1
