"""The SASL settings of one listener. A name with the listener's prefix takes precedence over the name without it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from moldau.broker.config.listeners import ListenerConfig
from moldau.broker.config.setting import Password
from moldau.protocol.late_dataclass import dataclass

SASL_PROTOCOLS: Final = ("SASL_PLAINTEXT", "SASL_SSL")
"""The security protocols that use SASL."""
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
JAAS: Final = "sasl.jaas.config"
NO_KERBEROS: Final = (
    "GSSAPI is refused: Kerberos needs a native library and a key distribution centre, and this broker has neither. "
    f"Use one of {', '.join(MECHANISMS)}, or certificates of clients (ssl.client.auth)."
)


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """The settings of the SASL logins of a listener's clients."""

    listener: str
    mechanisms: tuple[str, ...]
    jaas: dict[str, Password]
    """The login context (sasl.jaas.config) of each mechanism that has one."""
    receive_size_max: int
    """The most bytes of a request before the client has authenticated."""
    failure_delay_ms: int
    """The pause (ms) before a connection is closed after a failed authentication."""
    reauth_ms_max: dict[str, int]
    """The time (ms) after which a client must authenticate again, by mechanism; 0 if it need not."""


@dataclass(frozen=True, slots=True)
class LoginSettings:
    """The mechanism and the credentials with which this node logs in to a listener of another node."""

    listener: str
    mechanism: str
    jaas: Password | None
    jaas_name: str


def sasl_settings(config: ListenerConfig, listener: str) -> SaslSettings:
    """The SASL settings of a listener for its clients."""
    settings = config.settings
    mechanisms = settings.entries(settings.listener_setting_name(listener, "sasl.enabled.mechanisms"))
    jaas = {name: value for name in mechanisms if (value := settings.password(_jaas_name(listener, name)))}
    return SaslSettings(
        listener=listener,
        mechanisms=mechanisms,
        jaas=jaas,
        receive_size_max=settings.integer(settings.listener_setting_name(listener, "sasl.server.max.receive.size")),
        failure_delay_ms=config.settings.integer("connection.failed.authentication.delay.ms"),
        reauth_ms_max={name: _reauth_ms(config, listener, name) for name in mechanisms},
    )


def login_settings(config: ListenerConfig, listener: str) -> LoginSettings:
    """The settings with which this node logs in to a listener of another node. The name of the listener decides whether
    the mechanism for controllers or the one between brokers is used.
    """
    is_controller = listener in config.controller_listener_names
    kind = "sasl.mechanism.controller.protocol" if is_controller else "sasl.mechanism.inter.broker.protocol"
    mechanism = config.settings.text(kind)
    name = _jaas_name(listener, mechanism)
    return LoginSettings(listener, mechanism, config.settings.password(name), name)


def token_key(config: ListenerConfig) -> bytes | None:
    """The key from which the secrets of delegation tokens are derived; None if delegation tokens are disabled."""
    key = config.settings.password("delegation.token.secret.key")
    return (key.reveal().encode() if key is not None else b"") or None


def broken_sasl_rules(config: ListenerConfig) -> Iterator[str]:
    """The problems of the SASL settings of all listeners, with Apache Kafka's messages if there are any."""
    authenticated = [each.name for each in config.listeners if each.security_protocol in SASL_PROTOCOLS]
    for listener in authenticated:
        settings = sasl_settings(config, listener)
        name = config.settings.listener_setting_name(listener, "sasl.enabled.mechanisms")
        for mechanism in settings.mechanisms:
            if mechanism == "GSSAPI":
                yield f"{name} of listener {listener}: {NO_KERBEROS}"
            elif mechanism not in MECHANISMS:
                yield f"{name} of listener {listener} names {mechanism}; {', '.join(MECHANISMS)} are served"
        if not settings.mechanisms:
            yield f"{name} leaves listener {listener} without a mechanism"
    inter_broker = config.inter_broker_listener_name
    if config.is_broker and inter_broker in authenticated:
        mechanism = config.settings.text("sasl.mechanism.inter.broker.protocol")
        if mechanism not in sasl_settings(config, inter_broker).mechanisms:
            yield (
                "sasl.mechanism.inter.broker.protocol must be included in sasl.enabled.mechanisms when SASL is used "
                "for inter-broker communication"
            )
    yield from _broken_logins(config)


def _broken_logins(config: ListenerConfig) -> Iterator[str]:
    """The problems of the settings with which this node logs in to other nodes."""
    for listener in outgoing_listeners(config):
        if config.listener_protocols.get(listener) in SASL_PROTOCOLS:
            login = login_settings(config, listener)
            if login.mechanism == "GSSAPI":
                yield f"The mechanism with which this node logs in to listener {listener}: {NO_KERBEROS}"
            elif login.mechanism not in MECHANISMS:
                yield f"This node cannot log in to listener {listener} with {login.mechanism}"
            elif login.jaas is None:
                yield f"{login.jaas_name} is not set: this node logs in to listener {listener} with it"


def outgoing_listeners(config: ListenerConfig) -> list[str]:
    """The names of the listeners of other nodes to which this node connects: the one between brokers, and that of the
    controllers.
    """
    controllers = list(config.controller_listener_names[:1])
    return [*([config.inter_broker_listener_name] if config.is_broker else []), *controllers]


def _jaas_name(listener: str, mechanism: str) -> str:
    """The name of the setting with the login context of a mechanism.

    As in Apache Kafka, the name without the listener's prefix is not read.
    """
    return f"listener.name.{listener.lower()}.{mechanism.lower()}.{JAAS}"


def _reauth_ms(config: ListenerConfig, listener: str, mechanism: str) -> int:
    own = f"listener.name.{listener.lower()}.{mechanism.lower()}.connections.max.reauth.ms"
    settings = config.settings
    if settings.is_set(own):
        return settings.integer(own)
    return settings.integer(settings.listener_setting_name(listener, "connections.max.reauth.ms"))
