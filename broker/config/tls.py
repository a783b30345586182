"""The TLS settings of one listener. A name with the listener's prefix takes precedence over the name without it.

When this node connects to another node, it uses the settings of that node's listener.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Final

from moldau.broker.config.listeners import ListenerConfig
from moldau.broker.config.setting import Password
from moldau.protocol.late_dataclass import dataclass

ENCRYPTED: Final = ("SSL", "SASL_SSL")
"""The security protocols that use TLS."""
STORE_TYPES: Final = ("JKS", "PKCS12", "PEM")
PROTOCOLS: Final = ("TLSv1.2", "TLSv1.3")
SUITES_OF_TLS_1_3: Final = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")


class ClientAuth(Enum):
    """Whether a client must present a certificate."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The settings of a key store or a trust store, with the names under which they were found."""

    purpose: str
    """The use of the store: `keystore` or `truststore`."""
    type: str
    location: str | None
    location_name: str
    password: Password | None
    certificates: Password | None
    """The certificates in PEM, if a setting holds them instead of a file: the chain of a key store, or the authorities
    of a trust store.
    """
    certificates_name: str
    key: Password | None
    """The private key in PEM, if a setting holds it instead of a file."""

    @property
    def is_set(self) -> bool:
        return self.location is not None or self.certificates is not None


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The settings for the TLS contexts of one listener."""

    listener: str
    key_store: StoreSettings
    trust_store: StoreSettings
    key_password: Password | None
    client_auth: ClientAuth
    protocols: tuple[str, ...]
    cipher_suites: tuple[str, ...]
    checks_host_names: bool
    """Whether this node verifies the host name of the nodes that it connects to."""
    principal_rules: str
    """The rules that map the name in a client's certificate to a principal."""
    may_change_name: bool
    """Whether a renewed certificate may have another distinguished name."""
    may_lose_names: bool
    """Whether a renewed certificate may lack alternative names of its predecessor."""


def tls_settings(config: ListenerConfig, listener: str) -> TlsSettings:
    """The TLS settings of one listener."""
    of = _OfListener(config, listener)
    protocols = tuple(each for each in of.entries("ssl.enabled.protocols") if each in PROTOCOLS)
    if of.text("ssl.protocol") == "TLSv1.2":
        protocols = tuple(each for each in protocols if each == "TLSv1.2")
    return TlsSettings(
        listener=listener,
        key_store=StoreSettings(
            "keystore",
            (of.text("ssl.keystore.type") or "").upper(),
            of.text("ssl.keystore.location"),
            of.name("ssl.keystore.location"),
            of.password("ssl.keystore.password"),
            of.password("ssl.keystore.certificate.chain"),
            of.name("ssl.keystore.certificate.chain"),
            of.password("ssl.keystore.key"),
        ),
        trust_store=StoreSettings(
            "truststore",
            (of.text("ssl.truststore.type") or "").upper(),
            of.text("ssl.truststore.location"),
            of.name("ssl.truststore.location"),
            of.password("ssl.truststore.password"),
            of.password("ssl.truststore.certificates"),
            of.name("ssl.truststore.certificates"),
            None,
        ),
        key_password=of.password("ssl.key.password"),
        client_auth=_client_auth(of),
        protocols=protocols,
        cipher_suites=of.entries("ssl.cipher.suites"),
        checks_host_names=(of.text("ssl.endpoint.identification.algorithm") or "").lower() == "https",
        principal_rules=of.text("ssl.principal.mapping.rules") or "",
        may_change_name=of.flag("ssl.allow.dn.changes"),
        may_lose_names=of.flag("ssl.allow.san.changes"),
    )


def broken_tls_rules(config: ListenerConfig) -> Iterator[str]:
    """The problems of the TLS settings of all listeners. The files of the stores are not read."""
    for listener in encrypted_listeners(config):
        of = _OfListener(config, listener)
        settings = tls_settings(config, listener)
        if not settings.protocols:
            yield (
                f"{of.name('ssl.enabled.protocols')} leaves listener {listener} without a version of TLS: TLSv1.2 and "
                "TLSv1.3 are served, and ssl.protocol must allow one of them"
            )
        algorithm = of.text("ssl.endpoint.identification.algorithm") or ""
        if algorithm.lower() not in ("", "https"):
            yield f"{of.name('ssl.endpoint.identification.algorithm')} must be https or empty, and not {algorithm}"
        is_bound = any(each.name == listener for each in config.listeners)
        if is_bound and not settings.key_store.is_set:
            yield (
                f"Listener {listener} is {config.listener_protocols[listener]} and has no certificate: set "
                f"{of.name('ssl.keystore.location')}, or ssl.keystore.type=PEM with ssl.keystore.certificate.chain and "
                "ssl.keystore.key"
            )
        yield from _broken_store(settings.key_store)
        yield from _broken_store(settings.trust_store)


def encrypted_listeners(config: ListenerConfig) -> list[str]:
    """The names of the listeners with TLS that this node has or connects to."""
    names = dict.fromkeys([each.name for each in config.listeners] + list(config.controller_listener_names))
    return [each for each in names if config.listener_protocols.get(each) in ENCRYPTED]


def _broken_store(store: StoreSettings) -> Iterator[str]:
    setting = store.location_name.removesuffix("location")
    if store.type not in STORE_TYPES:
        yield f"{setting}type must be one of PEM, PKCS12 and JKS, and not {store.type}"
    if store.certificates is not None and store.type != "PEM":
        yield f"{store.certificates_name} is read where {setting}type is PEM, and it is {store.type}"
    if store.certificates is not None and store.location is not None:
        yield f"Only one of {store.location_name} and {store.certificates_name} should be set"
    if store.purpose == "keystore" and (store.certificates is None) != (store.key is None):
        yield f"{setting}certificate.chain and {setting}key must be set together"
    if store.location is not None and store.type == "PEM" and store.password is not None:
        yield f"{setting}password must not be set where {setting}type is PEM: the password of a key is ssl.key.password"


def _client_auth(of: _OfListener) -> ClientAuth:
    """Whether a listener demands certificates of its clients.

    As in Apache Kafka, a SASL_SSL listener demands them only if ssl.client.auth is set with the listener's prefix.
    """
    name = of.name("ssl.client.auth")
    if of.protocol == "SASL_SSL" and name == "ssl.client.auth":
        return ClientAuth.NONE
    return ClientAuth(of.text("ssl.client.auth"))


class _OfListener:
    """Reads the settings of one listener."""

    def __init__(self, config: ListenerConfig, listener: str) -> None:
        self._settings = config.settings
        self._listener = listener
        self.protocol = config.listener_protocols.get(listener, "")

    def name(self, name: str) -> str:
        return self._settings.listener_setting_name(self._listener, name)

    def text(self, name: str) -> str | None:
        return self._settings.text_or_none(self.name(name))

    def flag(self, name: str) -> bool:
        return self._settings.flag(self.name(name))

    def entries(self, name: str) -> tuple[str, ...]:
        return self._settings.entries(self.name(name))

    def password(self, name: str) -> Password | None:
        return self._settings.password(self.name(name))
