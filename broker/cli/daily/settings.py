"""The settings of a command's client: the properties that Apache Kafka's tools take, from a file, the environment and
the arguments.
"""

from __future__ import annotations

import argparse
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from moldau.broker.cli.daily.failures import WrongArguments
from moldau.broker.cli.daily.options import DEFAULT_BOOTSTRAP
from moldau.broker.cli.invocation import CommandError, Invocation, read_file, reason_of
from moldau.security.sasl.mechanism import ClientMechanism
from moldau.tables.client.settings import PROTOCOLS, Address, parse_address
from moldau.tables.refusals import Refused

CLIENT_ID: Final = "moldau"
TIMEOUT_S: Final = 30.0
BOOTSTRAP_VARIABLE: Final = "MOLDAU_BOOTSTRAP_SERVER"
FILE_VARIABLE: Final = "MOLDAU_COMMAND_CONFIG"
_CLIENT_PROPERTIES: Final = frozenset(
    (
        "bootstrap.servers",
        "client.id",
        "request.timeout.ms",
        "sasl.jaas.config",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.oauthbearer.header.urlencode",
        "sasl.password",
        "sasl.username",
        "security.protocol",
        "ssl.ca.location",
    )
)
"""The client properties that a broker does not have; it has most of `ssl.` and `sasl.`."""
_OF_SECURITY: Final = ("sasl.", "security.", "ssl.")
_ESCAPED: Final = str.maketrans({'"': r"\"", "\\": r"\\"})
"""Escapes the value of an option of a login module."""
_SIMILAR: Final = 0.85
"""The least similarity of an unknown name to a known one that was probably meant. No property of Kafka's clients is so
similar to another one that is read here.
"""
PREFIX: Final = "MOLDAU_CLIENT_"
"""The prefix of environment variables that are client properties: MOLDAU_CLIENT_SECURITY_PROTOCOL is
security.protocol.
"""


@dataclass(frozen=True)
class ClientProperties:
    """The settings of one client, a `ConnectionSettings`. `repr` does not show the properties, because they may have a
    password.
    """

    bootstrap: tuple[Address, ...]
    properties: Mapping[str, str]
    timeout_s: float
    source: str
    """The place from which the properties come, for messages."""

    def __repr__(self) -> str:
        return f"ClientProperties of {self.bootstrap_text}"

    @property
    def bootstrap_text(self) -> str:
        return ",".join(map(str, self.bootstrap))

    @property
    def client_id(self) -> str:
        return self.properties.get("client.id", CLIENT_ID)

    @property
    def request_timeout_ms(self) -> int:
        return max(1, int(self.timeout_s * 1000))

    @cached_property
    def protocol(self) -> str:
        protocol = self.properties.get("security.protocol", "PLAINTEXT").strip().upper()
        if protocol not in PROTOCOLS:
            raise WrongArguments(f"security.protocol={protocol}: it is one of {', '.join(PROTOCOLS)}")
        return protocol

    @property
    def is_encrypted(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def logs_in(self) -> bool:
        return self.protocol.startswith("SASL")

    def tls_context(self) -> ssl.SSLContext:
        """The TLS context of the client. The key and trust stores are read once. Raises `Failure`."""
        return self._tls

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        from moldau.broker.cli.client_channels import LISTENER, settings_of
        from moldau.broker.config import ConfigError
        from moldau.broker.config.loading import checked_config
        from moldau.broker.config.tls import tls_settings
        from moldau.broker.network.tls.contexts import make_contexts

        try:
            config = checked_config(settings_of({**self._stores(), "security.protocol": "SSL"}))
            return make_contexts(tls_settings(config, LISTENER)).client
        except ConfigError as refusal:
            raise WrongArguments(f"{self.source} cannot be used", *refusal.problems) from None
        except (ValueError, OSError) as problem:
            raise WrongArguments(f"{self.source} cannot be used: {reason_of(problem)}") from None

    def _stores(self) -> dict[str, str]:
        """The client properties of TLS. `ssl.ca.location`, librdkafka's name of the certificate authorities, is
        translated.
        """
        stores = {name: value for name, value in self.properties.items() if name.startswith("ssl.")}
        authorities = stores.pop("ssl.ca.location", None)
        if authorities is not None:
            stores |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": authorities}
        return stores

    def java_properties(self) -> dict[str, str]:
        """The properties by the names of Java's clients. librdkafka's names are translated."""
        found = {name: value for name, value in self.properties.items() if not name.startswith("ssl.")}
        found |= {**self._stores(), "security.protocol": self.protocol}
        if "sasl.mechanisms" in found:
            found.setdefault("sasl.mechanism", found["sasl.mechanisms"])
        if "sasl.username" in found and "sasl.jaas.config" not in found:
            options = "".join(
                f' {option}="{found.get(f"sasl.{option}", "").translate(_ESCAPED)}"'
                for option in ("username", "password")
            )
            is_plain = found.get("sasl.mechanism") == "PLAIN"
            module = "plain.PlainLoginModule" if is_plain else "scram.ScramLoginModule"
            found["sasl.jaas.config"] = f"org.apache.kafka.common.security.{module} required{options};"
        return found

    def new_login_mechanism(self) -> ClientMechanism:
        """Make the SASL mechanism with which one connection logs in. Raises `WrongArguments`; its message has no
        secret.
        """
        from moldau.security.sasl.client_login import PASSWORD_MECHANISMS, password_login
        from moldau.security.sasl.jaas import JaasError, LoginModule, parse_jaas

        known = self.properties
        name = known.get("sasl.mechanism", known.get("sasl.mechanisms", "GSSAPI")).strip().upper()
        if name not in PASSWORD_MECHANISMS:
            raise WrongArguments(f"sasl.mechanism={name}: this command logs in by {', '.join(PASSWORD_MECHANISMS)}")
        try:
            if "sasl.jaas.config" in known:
                module = parse_jaas(known["sasl.jaas.config"], name)
            else:
                # librdkafka's names.
                module = LoginModule(name, {option: known[f"sasl.{option}"] for option in ("username", "password")})
            return password_login(name, module, os.urandom)()
        except JaasError as problem:
            raise WrongArguments(f"sasl.jaas.config: {problem}") from None
        except KeyError:
            raise WrongArguments(
                f"security.protocol={self.protocol} needs sasl.jaas.config: {self.source} has none"
            ) from None


def client_properties(arguments: argparse.Namespace, invocation: Invocation) -> ClientProperties:
    """Read the client properties from the file, the environment variables and the arguments. A later source takes
    precedence. Raises `CommandError`.
    """
    variables = invocation.variables
    file = arguments.command_config or variables.get(FILE_VARIABLE)
    properties = _of_file(file) if file else {}
    properties |= {
        name.removeprefix(PREFIX).lower().replace("_", "."): value
        for name, value in variables.items()
        if name.startswith(PREFIX)
    }
    for given in arguments.command_property:
        name, is_pair, value = given.partition("=")
        if not is_pair:
            raise WrongArguments(f"--command-property {given} is not NAME=VALUE")
        properties[name.strip()] = value.strip()
    refuse_unknown(properties)
    text = (
        arguments.bootstrap_server
        or variables.get(BOOTSTRAP_VARIABLE)
        or properties.get("bootstrap.servers")
        or DEFAULT_BOOTSTRAP
    )
    if "://" in text:
        raise WrongArguments(
            f"--bootstrap-server {text}: a broker is named by host:port, without {text.partition('://')[0]}://"
        )
    try:
        named = [each.strip() for each in text.split(",") if each.strip()] or [text]
        bootstrap = tuple(map(parse_address, named))
    except Refused:
        raise WrongArguments(f"--bootstrap-server {text} is not of the form host:port[,host:port]") from None
    settings = ClientProperties(bootstrap, properties, _timeout(arguments, properties), file or "the environment")
    settings.protocol  # noqa: B018 refuses one that there is not
    return settings


def refuse_unknown(properties: Mapping[str, str]) -> None:
    """Raise `WrongArguments` for a property of TLS or SASL that Kafka does not know, and for a misspelled name. Without
    that a command would connect without encryption, although the user asked for it. Other properties of Kafka's clients
    have no effect.
    """
    others = [name for name in properties if name not in _CLIENT_PROPERTIES]
    if not others:
        return
    from difflib import get_close_matches

    from moldau.broker.config.catalogue import broker_catalogue

    catalogue = broker_catalogue()
    known = [*_CLIENT_PROPERTIES, *(name for name in catalogue if name.startswith(_OF_SECURITY))]
    for name in others:
        close = [] if name in catalogue else get_close_matches(name, known, 1, _SIMILAR)
        if close or (name.startswith(_OF_SECURITY) and name not in catalogue):
            hint = f"; did you mean {close[0]}?" if close else ""
            raise WrongArguments(f"there is no client property {name}{hint}")


def _of_file(file: str) -> dict[str, str]:
    try:
        return dict(read_file(file))
    except CommandError as problem:
        raise WrongArguments(str(problem)) from None


def _timeout(arguments: argparse.Namespace, properties: Mapping[str, str]) -> float:
    if arguments.timeout is not None:
        if not 0 < arguments.timeout < 1e6:
            raise WrongArguments(f"--timeout {arguments.timeout:g} is not a number of seconds above 0")
        return float(arguments.timeout)
    text = properties.get("request.timeout.ms")
    if text is None:
        return TIMEOUT_S
    if not text.strip().isdecimal() or int(text) == 0:
        raise WrongArguments(f"request.timeout.ms={text} is not a whole number above 0")
    return int(text) / 1000
