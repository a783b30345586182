"""TLS contexts of one listener, made from its stores. They are never changed.

A certificate authority cannot be removed from a context. So a replaced store needs a new pair of contexts, and each
connection uses the pair that is current when it begins.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Final

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

_VERIFY: Final = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


@dataclass(frozen=True, slots=True)
class TlsContexts:
    """The pair of contexts. `server` is None where the listener has no key: then this node only connects to it."""

    server: ssl.SSLContext | None
    client: ssl.SSLContext
    trusted: frozenset[bytes] | None
    """The trusted certificates in DER; None where the system's are trusted."""
    names: CertificateNames | None
    """The names in this node's own certificate."""


def make_contexts(settings: TlsSettings) -> TlsContexts:
    """Read the stores and make both contexts; this blocks. Raises `InvalidStore`."""
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
        context.load_verify_locations(cadata=b"".join(trusted))
    elif protocol is ssl.PROTOCOL_TLS_CLIENT:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    elif settings.client_auth is not ClientAuth.NONE:
        # Not where no client is verified: OpenSSL would read the system's directory of authorities in each handshake,
        # to complete the chain of this node's own certificate. The key store has the chain.
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    return context


def _load_key(context: ssl.SSLContext, store: StoreSettings, key: OwnKey) -> None:
    where = f"{store.location_name}={store.location}" if store.location is not None else store.certificates_name
    with memory_file(key.pem) as path:
        try:
            # Without a password OpenSSL must not prompt on a terminal.
            context.load_cert_chain(path, password=key.password or "")
        except (ssl.SSLError, OSError) as error:
            reason = getattr(error, "reason", None) or error
            raise InvalidStore(
                f"{where}: the key and its certificate cannot be used; is ssl.key.password right, and does the key "
                f"belong to the certificate? ({reason})"
            ) from None


def _choose_suites(
    context: ssl.SSLContext, settings: TlsSettings, versions: list[ssl.TLSVersion]
) -> list[ssl.TLSVersion]:
    """Set the suites of TLS 1.2, and leave out the version that has none.

    DIVERGES: the suites of TLS 1.3 cannot be chosen one by one; where one is named, all three are offered.
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
