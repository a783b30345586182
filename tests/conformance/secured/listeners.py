"""The settings of a node whose peers authenticate, beside a plain listener on which administrators are super users."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from tests.conformance.secured.jaas import PLAIN, SCRAM, login, scram_words
from tests.conformance.secured.stores import Stores

NODE, NODE_SECRET = "node", "node-secret"
"""The principal of brokers and controllers: the common name of their certificate, or their login."""
COMMON_NAME: Final = "RULE:^.*CN=([a-z]+).*$/$1/"
BETWEEN_BROKERS, TO_CONTROLLERS = "SCRAM-SHA-512", "PLAIN"
CLIENTS: Final = "SCRAM-SHA-512"


class Between(Enum):
    """How brokers and controllers authenticate to each other, both under TLS."""

    CERTIFICATES = "SSL"
    PASSWORDS = "SASL_SSL"


def secured(stores: Stores, port: int, more: int, between: Between, *, is_controller: bool = True) -> dict[str, str]:
    """The listeners: PLAINTEXT at `port`, SECURE for clients at `more`, BROKERS at the port after it.

    The controller's is at the port after `port`.
    """
    addresses = {"PLAINTEXT": port, "SECURE": more, "BROKERS": more + 1}
    advertised = [f"{name}://127.0.0.1:{at}" for name, at in addresses.items()]
    own = [f"CONTROLLER://127.0.0.1:{port + 1}"] if is_controller else []
    protocols = {"PLAINTEXT": "PLAINTEXT", "SECURE": "SASL_SSL", "BROKERS": between.value, "CONTROLLER": between.value}
    return {
        "listeners": ",".join([*advertised, *own]),
        "advertised.listeners": ",".join(advertised),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "inter.broker.listener.name": "BROKERS",
        **stores.of_node(),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:ANONYMOUS;User:{NODE}",
        "listener.name.secure.sasl.enabled.mechanisms": CLIENTS,
        f"listener.name.secure.{CLIENTS.lower()}.sasl.jaas.config": f"{SCRAM} required;",
        **(_certificates() if between is Between.CERTIFICATES else _passwords()),
    }


def _certificates() -> dict[str, str]:
    return {
        f"listener.name.{name}.ssl.{setting}": value
        for name in ("brokers", "controller")
        for setting, value in (("client.auth", "required"), ("principal.mapping.rules", COMMON_NAME))
    }


def _passwords() -> dict[str, str]:
    """SCRAM between brokers, whose credentials are in the metadata; PLAIN to controllers, which have to elect first."""
    accepted = f'user_{NODE}="{NODE_SECRET}"'
    return {
        "sasl.mechanism.inter.broker.protocol": BETWEEN_BROKERS,
        "listener.name.brokers.sasl.enabled.mechanisms": BETWEEN_BROKERS,
        f"listener.name.brokers.{BETWEEN_BROKERS.lower()}.sasl.jaas.config": login(BETWEEN_BROKERS, NODE, NODE_SECRET),
        "sasl.mechanism.controller.protocol": TO_CONTROLLERS,
        "listener.name.controller.sasl.enabled.mechanisms": TO_CONTROLLERS,
        f"listener.name.controller.{TO_CONTROLLERS.lower()}.sasl.jaas.config": (
            f'{PLAIN} required username="{NODE}" password="{NODE_SECRET}" {accepted};'
        ),
    }


def credentials(users: Mapping[str, str]) -> list[str]:
    """The words of `format` that give each user and the nodes their SCRAM credentials."""
    return [word for name, secret in {NODE: NODE_SECRET, **users}.items() for word in scram_words(name, secret)]
