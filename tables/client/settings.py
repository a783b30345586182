"""The settings with which a client connects to a cluster: addresses, security, timeouts. The object is pickled into the
tasks of Spark."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

from moldau.security.sasl.client_login import PASSWORD_MECHANISMS, password_login
from moldau.security.sasl.jaas import JaasError, parse_jaas
from moldau.security.sasl.mechanism import ClientMechanism
from moldau.tables.refusals import Refused

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
CLIENT_ID: Final = "moldau-spark"
REQUEST_TIMEOUT_MS: Final = 30_000


class Address(NamedTuple):
    """The host and the port of a broker's listener."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ConnectionSettings(Protocol):
    """The settings of a client that its connections read."""

    @property
    def bootstrap(self) -> tuple[Address, ...]: ...

    @property
    def client_id(self) -> str: ...

    @property
    def request_timeout_ms(self) -> int: ...

    @property
    def is_encrypted(self) -> bool: ...

    @property
    def logs_in(self) -> bool: ...

    def tls_context(self) -> ssl.SSLContext: ...

    def new_login_mechanism(self) -> ClientMechanism: ...


class ClientSettings(NamedTuple):
    """The settings of a client, made by `client_settings_of`. Its `repr` leaves out the login context, which has
    passwords."""

    bootstrap: tuple[Address, ...]
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str = ""
    sasl_jaas_config: str = ""
    ca_location: str | None = None
    checks_host_name: bool = True
    client_id: str = CLIENT_ID
    request_timeout_ms: int = REQUEST_TIMEOUT_MS
    keystore_location: str | None = None
    """A PEM file with the client's key and its certificate chain; None if the client has no certificate."""
    key_password: str = ""

    @property
    def is_encrypted(self) -> bool:
        return self.security_protocol.endswith("SSL")

    @property
    def logs_in(self) -> bool:
        return self.security_protocol.startswith("SASL")

    def __repr__(self) -> str:
        return f"ClientSettings of {', '.join(map(str, self.bootstrap))}"

    def tls_context(self) -> ssl.SSLContext:
        """Make the TLS context of the client. Raises `Refused` if the file of certificate authorities or the key store
        cannot be read."""
        try:
            context = ssl.create_default_context(cafile=self.ca_location)
        except (OSError, ssl.SSLError) as problem:
            raise Refused(f"kafka.ssl.ca.location: {self.ca_location}: {problem}") from None
        context.check_hostname = self.checks_host_name
        if self.keystore_location is not None:
            try:  # Without a password, OpenSSL would ask for one at the terminal.
                context.load_cert_chain(self.keystore_location, password=self.key_password)
            except (OSError, ssl.SSLError) as problem:
                raise Refused(f"kafka.ssl.keystore.location: {self.keystore_location}: {problem}") from None
        return context

    def new_login_mechanism(self) -> ClientMechanism:
        """Make the SASL login of one connection. Raises `Refused`, whose text has no secret."""
        if self.sasl_mechanism not in PASSWORD_MECHANISMS:
            raise Refused(f"kafka.sasl.mechanism: {self.sasl_mechanism} is not one of {', '.join(PASSWORD_MECHANISMS)}")
        try:
            module = parse_jaas(self.sasl_jaas_config, self.sasl_mechanism)
            return password_login(self.sasl_mechanism, module, os.urandom)()
        except JaasError as problem:
            raise Refused(f"kafka.sasl.jaas.config: {problem}") from None


def client_settings_of(brokers: tuple[str, ...], given: Mapping[str, str]) -> ClientSettings:
    """Make the settings from bootstrap addresses and the options `kafka.*`, whose names are in lower case. Raises
    `Refused`."""
    protocol = given.get("kafka.security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in PROTOCOLS:
        raise Refused(f"kafka.security.protocol: {protocol} is not one of {', '.join(PROTOCOLS)}")
    mechanism = given.get("kafka.sasl.mechanism", "").strip().upper()
    if protocol.startswith("SASL") and not (mechanism and given.get("kafka.sasl.jaas.config")):
        raise Refused(f"kafka.security.protocol={protocol} needs kafka.sasl.mechanism and kafka.sasl.jaas.config")
    return ClientSettings(
        tuple(parse_address(name) for name in brokers),
        protocol,
        mechanism,
        given.get("kafka.sasl.jaas.config", ""),
        _authorities(given),
        given.get("kafka.ssl.endpoint.identification.algorithm", "https").strip() != "",
        given.get("kafka.client.id", CLIENT_ID),
        _timeout(given.get("kafka.request.timeout.ms")),
        _pem_store(given, "keystore"),
        given.get("kafka.ssl.key.password", ""),
    )


def parse_address(name: str) -> Address:
    """Parse the address `host:port`, or `[host]:port` for IPv6. Raises `Refused`; `::1` has no port."""
    host, _, port = name.rpartition(":")
    try:
        host.encode("idna")  # As the resolver encodes it: no part of the name is empty or longer than 63.
    except UnicodeError:
        host = ""
    if not host or host.endswith(":") or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise Refused(f"kafka.bootstrap.servers: {name} is not host:port")
    return Address(host.removeprefix("[").removesuffix("]"), int(port))


def _authorities(given: Mapping[str, str]) -> str | None:
    if "kafka.ssl.ca.location" in given:
        return given["kafka.ssl.ca.location"]
    return _pem_store(given, "truststore")


def _pem_store(given: Mapping[str, str], kind: str) -> str | None:
    store = given.get(f"kafka.ssl.{kind}.location")
    if store is not None and given.get(f"kafka.ssl.{kind}.type", "JKS").strip().upper() != "PEM":
        raise Refused(f"kafka.ssl.{kind}.location: only a {kind} of type PEM can be read (kafka.ssl.{kind}.type)")
    return store


def _timeout(value: str | None) -> int:
    if value is None:
        return REQUEST_TIMEOUT_MS
    if not value.strip().isdecimal() or int(value) == 0:
        raise Refused(f"kafka.request.timeout.ms: {value} is not a whole number above 0")
    return int(value)
