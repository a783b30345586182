"""The connections of a command to the brokers of a cluster. The command is a client of the cluster, and takes the
properties that Apache Kafka's tools take.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from moldau.broker.cli.invocation import CommandError, reason_of

if TYPE_CHECKING:
    from moldau.broker.network.peer_channel import PeerChannels

LISTENER: Final = "CLUSTER"
"""The name of the listener that stands for the cluster, in the configuration into which the client's properties are
turned.
"""


def client_channels(purpose: str, properties: Mapping[str, str], source: str) -> PeerChannels:
    """Create the connections of a command from client properties. `source` is the place of the properties, for
    messages. It must be called on an event loop. Raises `CommandError` if the properties cannot be used.
    """
    import asyncio

    from moldau.broker.network.peer_channel import PeerChannels
    from moldau.broker.purgatory.timer_wheel import Timeouts
    from moldau.broker.release import KAFKA_VERSION

    loop = asyncio.get_running_loop()
    timeouts = Timeouts(loop)
    if properties.get("security.protocol", "PLAINTEXT") == "PLAINTEXT":
        return PeerChannels(loop, timeouts, purpose, KAFKA_VERSION)
    from moldau.broker.config.config import ConfigError
    from moldau.broker.config.loading import checked_config
    from moldau.broker.node.security import NodeMechanisms, NodeSecurity
    from moldau.broker.runtime.environment import LocalEnvironment
    from moldau.broker.runtime.tasks import Tasks
    from moldau.kraft.image.metadata_image import MetadataImage

    environment = LocalEnvironment(loop)
    try:
        config = checked_config(settings_of(properties))
        mechanisms = NodeMechanisms(config, environment, "", MetadataImage)
        security = NodeSecurity(config, environment, loop, Tasks(environment.halt).spawn, mechanisms)
        _, channels = security.channels(timeouts)
    except (ConfigError, ValueError, OSError) as problem:
        raise CommandError(f"{source} cannot be used: {reason_of(problem)}") from None
    return channels


def settings_of(properties: Mapping[str, str]) -> dict[str, str]:
    """Turn the properties of a client into the settings of a broker that connects to its controllers with the same
    protocol and login.
    """
    mechanism = properties.get("sasl.mechanism", "GSSAPI")
    settings = {
        "process.roles": "broker",
        "node.id": "0",
        "listeners": "PLAINTEXT://127.0.0.1:9092",
        "controller.listener.names": LISTENER,
        "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{LISTENER}:{properties['security.protocol']}",
        "log.dirs": "/nonexistent",
    }
    if properties["security.protocol"].startswith("SASL_"):
        settings["sasl.mechanism.controller.protocol"] = mechanism
    if "sasl.jaas.config" in properties:
        name = f"listener.name.{LISTENER.lower()}.{mechanism.lower()}.sasl.jaas.config"
        settings[name] = properties["sasl.jaas.config"]
    return settings | {name: value for name, value in properties.items() if name.startswith("ssl.")}
