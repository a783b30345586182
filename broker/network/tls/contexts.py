"""The TLS contexts of one listener: made from its stores, and made anew when their files change, without a restart.

A certificate authority cannot be removed from a context. So contexts are never changed: a replaced store needs a new
pair of contexts, and each connection keeps the pair with which it began.

    every `CHECK_S`     the files of the stores are checked; if one has changed, both contexts are made anew
    cannot be used      the contexts stay as they are, and the log says why, once for each reason
    another name        refused, unless ssl.allow.dn.changes or ssl.allow.san.changes allows it
    authority removed   the connections that it authenticated are closed
    session resumed     the chain that the full handshake verified is checked again: OpenSSL checks nothing then

A client can resume a session of TLS 1.2 by its id, with the session cache of the context; TLS 1.3 and tickets are not
resumed. So the chains of these sessions are remembered, and a resumed handshake ends as a full one would: it fails
if a certificate of the chain has expired, and the removal of its authority closes the connection. A changed store
ends all sessions, because the new context has no session.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from moldau.broker.config.tls import SUITES_OF_TLS_1_3, ClientAuth, StoreSettings, TlsSettings
from moldau.broker.network.tls.stores import (
    CertificateNames,
    InvalidStore,
    OwnKey,
    certificate_names,
    own_key,
    trusted_certificates,
)
from moldau.broker.runtime.memory_file import memory_file
from moldau.security.tls.certificate_names import MalformedCertificate, validity_end_ms

log = logging.getLogger("moldau.listener")

_VERIFY: Final = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
CHECK_S: Final = 1.0
SESSIONS_MAX: Final = 32_768
"""The maximum number of TLS 1.2 sessions whose chains are remembered. Beyond it the oldest is forgotten, and cannot be
resumed. OpenSSL's own cache holds fewer: 20,480.
"""
Offload = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs blocking work in an executor thread."""


@dataclass(frozen=True, slots=True)
class TlsContexts:
    """The TLS contexts of a listener, for accepting and for connecting. `server` is None if the listener has no key:
    then this node only connects to it.
    """

    server: ssl.SSLContext | None
    client: ssl.SSLContext
    trusted: frozenset[bytes] | None
    """The trusted certificates in DER; None if the system's are trusted."""
    names: CertificateNames | None
    """The names in this node's own certificate."""


def make_contexts(settings: TlsSettings) -> TlsContexts:
    """Read the stores and make both contexts of a listener. Blocks. Raises `InvalidStore`."""
    key = own_key(settings.key_store, settings.key_password.reveal() if settings.key_password else None)
    trusted = trusted_certificates(settings.trust_store)
    client = _context(ssl.PROTOCOL_TLS_CLIENT, settings, key, trusted)
    client.check_hostname = settings.checks_host_names
    client.verify_mode = ssl.CERT_REQUIRED
    server = None
    if key is not None:
        server = _context(ssl.PROTOCOL_TLS_SERVER, settings, key, trusted)
        server.verify_mode = _VERIFY[settings.client_auth]
        # A session ticket would admit a client without a check of its certificate, and Java's clients use none.
        server.num_tickets = 0
        server.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    return TlsContexts(
        server, client, None if trusted is None else frozenset(trusted), None if key is None else _names(settings, key)
    )


def _context(
    protocol: ssl._SSLMethod, settings: TlsSettings, key: OwnKey | None, trusted: tuple[bytes, ...] | None
) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    # As in Java, each certificate of the store is trusted by itself, even if another authority has signed it.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    versions = [_VERSIONS[each] for each in settings.protocols]
    if settings.cipher_suites:
        versions = _choose_suites(context, settings, versions)
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    if key is not None:
        _load_key(context, settings.key_store, key)
    if trusted is not None:
        _load_trusted(context, settings.trust_store, trusted)
    elif protocol is ssl.PROTOCOL_TLS_CLIENT:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    elif settings.client_auth is not ClientAuth.NONE:
        # Not if no client is verified: OpenSSL would read the system's directory of authorities in each handshake,
        # to complete the chain of this node's own certificate. The key store has the chain.
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    return context


def _load_trusted(context: ssl.SSLContext, store: StoreSettings, trusted: tuple[bytes, ...]) -> None:
    for certificate in trusted:
        try:
            context.load_verify_locations(cadata=certificate)
        except ssl.SSLError as error:
            raise InvalidStore(f"{_place(store)} holds a certificate that is damaged ({error.reason})") from None


def _place(store: StoreSettings) -> str:
    return f"{store.location_name}={store.location}" if store.location is not None else store.certificates_name


def _load_key(context: ssl.SSLContext, store: StoreSettings, key: OwnKey) -> None:
    with memory_file(key.pem) as path:
        try:
            # Without a password OpenSSL must not prompt on a terminal.
            context.load_cert_chain(path, password=key.password or "")
        except (ssl.SSLError, OSError) as error:
            reason = getattr(error, "reason", None) or error
            raise InvalidStore(
                f"{_place(store)}: the key and its certificate cannot be used; is ssl.key.password right, and does the "
                f"key belong to the certificate? ({reason})"
            ) from None


def _choose_suites(
    context: ssl.SSLContext, settings: TlsSettings, versions: list[ssl.TLSVersion]
) -> list[ssl.TLSVersion]:
    """Set the cipher suites of TLS 1.2. Returns the versions that have a suite.

    DIVERGES: the suites of TLS 1.3 cannot be chosen one by one; if one is named, all three are offered.
    """
    old = [openssl_name(each) for each in settings.cipher_suites if each not in SUITES_OF_TLS_1_3]
    if old:
        try:
            context.set_ciphers(":".join(old))
        except ssl.SSLError:
            raise InvalidStore(f"ssl.cipher.suites names no suite that OpenSSL has: {', '.join(old)}") from None
    has = {
        ssl.TLSVersion.TLSv1_2: bool(old),
        ssl.TLSVersion.TLSv1_3: any(each in SUITES_OF_TLS_1_3 for each in settings.cipher_suites),
    }
    chosen = [each for each in versions if has[each]]
    if not chosen:
        raise InvalidStore("ssl.cipher.suites names no suite of a version in ssl.enabled.protocols")
    return chosen


def openssl_name(suite: str) -> str:
    """OpenSSL's name of a TLS 1.2 suite, from Java's name; OpenSSL's own names are returned unchanged."""
    if "_WITH_" not in suite:
        return suite
    exchange, _, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    cipher = cipher.replace("AES_", "AES").replace("_CBC", "").replace("_", "-")
    cipher = cipher.removesuffix("-SHA256") if "POLY1305" in cipher else cipher
    return cipher if exchange == "RSA" else f"{exchange.replace('_', '-')}-{cipher}"


def _names(settings: TlsSettings, key: OwnKey) -> CertificateNames:
    try:
        return certificate_names(key.pem)
    except ValueError as error:
        raise InvalidStore(f"{settings.key_store.location_name}: the certificate cannot be read: {error}") from None


class HandshakeChain(NamedTuple):
    """The chain of a peer's certificate after a handshake."""

    verified: tuple[bytes, ...]
    """The verified certificates in DER, the trusted one last. Empty if the handshake resumed a session, because OpenSSL
    verifies nothing then.
    """
    session_id: bytes
    """The id by which the peer may resume the session; empty if it cannot."""


class TrustedConnection(Protocol):
    """A connection whose peer was authenticated by its certificate."""

    def distrusted(self) -> None:
        """Close the connection, because the authority of the peer's certificate is not trusted any more."""


class RememberedChain(NamedTuple):
    """The facts that are kept of a certificate chain that a full handshake verified."""

    anchor: bytes
    """The trusted certificate at the end of the chain, in DER."""
    ends_at_ms: int
    """The time (wall clock, ms) at which the first certificate of the chain to expire expires."""


class ReloadingTls:
    """The current TLS contexts of one listener, which are renewed when the store files change. The constructor raises
    `InvalidStore` if the stores cannot be used.
    """

    def __init__(self, settings: TlsSettings, wall_clock_ms: Callable[[], int]) -> None:
        self.settings = settings
        self._wall_clock_ms = wall_clock_ms
        self._stamp = self._file_stamps()
        self._contexts = make_contexts(settings)
        self._trusting: dict[TrustedConnection, bytes] = {}
        """For each connection whose peer presented a certificate: the trusted certificate of its chain."""
        self._sessions: dict[bytes, RememberedChain] = {}
        """The chains of the sessions that clients can resume in the current context, by session id, the oldest
        first.
        """
        self._anchors: dict[bytes, bytes] = {}
        """The trusted certificates at the ends of chains. Each is both key and value, so that sessions and connections
        share one copy of its bytes.
        """
        self._problem: str | None = None

    @property
    def contexts(self) -> TlsContexts:
        return self._contexts

    def server_context(self) -> ssl.SSLContext:
        """The TLS context for a client that connects now."""
        assert self._contexts.server is not None, "a listener that is bound has a key"
        return self._contexts.server

    def client_context(self) -> ssl.SSLContext:
        """The TLS context for a connection that this node makes now."""
        return self._contexts.client

    def register(self, connection: TrustedConnection, presented: HandshakeChain | None) -> str | None:
        """Register a connection whose peer its certificate authenticated, until `forget`. Returns why the connection is
        refused, or None if it is accepted. `presented` is None if the peer presented no certificate.
        """
        if presented is None:
            return None
        if presented.verified:
            chain = self._remembered(presented.verified, presented.session_id)
        else:
            resumed = self._sessions.get(presented.session_id)
            if resumed is None:
                return "the session that the client resumes is not known any more"
            if resumed.ends_at_ms <= self._wall_clock_ms():
                return "a certificate of the session that the client resumes has expired"
            chain = resumed
        if not self._trusts(chain.anchor):  # Its handshake began before the authority was removed.
            return "the authority of the peer's certificate is no longer trusted"
        self._trusting[connection] = chain.anchor
        return None

    def _remembered(self, certificates: tuple[bytes, ...], session_id: bytes) -> RememberedChain:
        """The chain of a full handshake. It is remembered if the client can resume the session."""
        anchor = self._anchors.setdefault(certificates[-1], certificates[-1])
        try:
            ends_at_ms = min(map(validity_end_ms, certificates))
        except MalformedCertificate:  # OpenSSL can read the time, and checks it in the next full handshake.
            ends_at_ms = 0
        chain = RememberedChain(anchor, ends_at_ms)
        if session_id:
            if len(self._sessions) >= SESSIONS_MAX:
                del self._sessions[next(iter(self._sessions))]
            self._sessions[session_id] = chain
        return chain

    def forget(self, connection: TrustedConnection) -> None:
        self._trusting.pop(connection, None)

    async def check_files(self, offload: Offload) -> None:
        """Check whether the store files have changed, and renew the contexts if so."""
        stamp = await offload(self._file_stamps)
        if stamp == self._stamp:
            return
        try:
            contexts = await offload(partial(make_contexts, self.settings))
        except (InvalidStore, OSError) as problem:  # OSError: no file descriptor is left, for example.
            self._say(str(problem))
            return
        refusal = self._refusal(contexts)
        if refusal is not None:
            self._stamp = stamp
            self._say(refusal)
            return
        self._stamp = stamp
        self._problem = None
        self._contexts = contexts
        self._sessions.clear()
        self._anchors.clear()
        log.info("listener %s uses its changed key store or trust store now", self.settings.listener)
        for connection, anchor in tuple(self._trusting.items()):
            if not self._trusts(anchor):
                connection.distrusted()

    def _file_stamps(self) -> tuple[object, ...]:
        """Read the stamps of the store files. A stamp changes when its file is written. None for a missing file."""
        return tuple(_stamp(Path(each)) for each in self._files())

    def _files(self) -> list[str]:
        stores = (self.settings.key_store, self.settings.trust_store)
        return [each.location for each in stores if each.location is not None]

    def _trusts(self, anchor: bytes) -> bool:
        trusted = self._contexts.trusted
        return trusted is None or anchor in trusted

    def _refusal(self, contexts: TlsContexts) -> str | None:
        """Say why new contexts are refused: their certificate has other names than the current one. None if they are
        accepted.
        """
        before, after = self._contexts.names, contexts.names
        if before is None or after is None:
            return None
        where = f"{self.settings.key_store.location_name}={self.settings.key_store.location}"
        if after.subject != before.subject and not self.settings.may_change_name:
            return (
                f"{where}: the new certificate is of {after.subject} and the one before of {before.subject}; "
                "ssl.allow.dn.changes=true allows it"
            )
        lost = before.alternatives - after.alternatives
        if lost and not self.settings.may_lose_names:
            return (
                f"{where}: the new certificate lacks the alternative names {', '.join(sorted(lost))}; "
                "ssl.allow.san.changes=true allows it"
            )
        return None

    def _say(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            log.error("listener %s keeps its certificates: %s", self.settings.listener, problem)


async def watch_files(all_tls: tuple[ReloadingTls, ...], offload: Offload) -> None:
    """Check the files of all listeners periodically, as long as the node runs."""
    while True:
        await asyncio.sleep(CHECK_S)
        for each in all_tls:
            await each.check_files(offload)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
