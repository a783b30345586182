"""What a node does besides its part in the metadata quorum: serve as a broker, or nothing more.

A broker registers, opens its partitions, serves clients and is released by the controller before it stops. A node
without that role follows the settings of the cluster only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from broker.metadata.producer_ids import ProducerIds
from broker.metadata.quorum_start import SECURITY_PROTOCOL_IDS
from broker.metadata.registration import UNREGISTERED, Identity, Registration
from broker.requests.apis import Role
from kraft.features import SUPPORTED_FEATURES
from protocol.messages import broker_registration

if TYPE_CHECKING:
    from broker.config.config import Config
    from broker.node.node import Broker
    from kraft.image.metadata_image import MetadataDelta, MetadataImage

SHUTDOWN_PATIENCE_MS: Final = 10_000
BEATS_OF_SILENCE: Final = 10


class NodeRole(Protocol):
    """`start` once the node has joined the quorum, `leave` before its listeners close."""

    @property
    def epoch(self) -> int:
        """Under which the node was registered last, -1 where it was not."""

    async def start(self) -> None: ...

    async def leave(self) -> None: ...

    def not_ready(self) -> list[str]:
        """Why it cannot do its work; empty where it can."""

    def directory_failed(self, directory_id: bytes) -> None:
        """One of the node's log directories is offline."""


def heartbeat_ms(config: Config) -> int:
    """So often that a stall shorter than the silence that fences a broker does not fence it."""
    interval_ms = config.integer("broker.heartbeat.interval.ms")
    silence_ms = config.integer("moldau.broker.silence.fence.ms")
    return min(interval_ms, max(1, silence_ms // BEATS_OF_SILENCE)) if silence_ms else interval_ms


def role_of(broker: Broker) -> NodeRole:
    return BrokerRole(broker) if broker.config.is_broker else ControllerRole(broker)


class BrokerRole:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @property
    def epoch(self) -> int:
        return self._broker.registration.epoch

    async def start(self) -> None:
        broker = self._broker
        await broker.follower.start()
        broker.bound_open_files()
        registration = broker.registration = Registration(
            self._identity(),
            broker.quorum,
            heartbeat_ms(broker.config),
            lambda: broker.image.provenance.end_offset - 1,
        )
        broker.producer_ids = ProducerIds(broker.quorum.submit, broker.node_id, lambda: registration.epoch)
        await registration.register(broker.config.integer("initial.broker.registration.timeout.ms"))
        broker.logs.serve_under(registration.epoch)
        broker.follower.begin()
        broker.assignments.begin()
        broker.fetchers.begin()
        broker.spawn(registration.keep_alive())
        for job in (*broker.log_jobs.jobs(), broker.in_sync_changes.job()):
            broker.tasks.every(job)
        broker.log_jobs.remove_later(broker.logs.left_to_remove(), 0)
        for listener in broker.listeners:
            if listener.role is Role.BROKER:
                await listener.accept()

    async def leave(self) -> None:
        """Leadership of its partitions is handed over first."""
        if self._broker.config.flag("controlled.shutdown.enable"):
            await self._broker.registration.shut_down(SHUTDOWN_PATIENCE_MS)

    def not_ready(self) -> list[str]:
        return ["the controller has fenced this broker"] if self._broker.registration.is_fenced else []

    def directory_failed(self, directory_id: bytes) -> None:
        self._broker.spawn(self._broker.registration.directory_failed(directory_id))

    def _identity(self) -> Identity:
        broker = self._broker
        return Identity(
            node_id=broker.node_id,
            cluster_id=broker.cluster_id,
            incarnation_id=broker.environment.entropy(16),
            rack=broker.config.text_or_none("broker.rack"),
            listeners=[
                broker_registration.Listener(
                    name=each.name,
                    host=each.host,
                    port=each.port,
                    security_protocol=SECURITY_PROTOCOL_IDS[each.security_protocol],
                )
                for each in broker.config.advertised_listeners
            ],
            features=[
                broker_registration.Feature(name=name, min_supported_version=first, max_supported_version=last)
                for name, (first, last) in SUPPORTED_FEATURES.items()
                if last > 0
            ],
            directory_ids=broker.logs.directory_ids,
            previous_epoch=broker.logs.previous_broker_epoch,
        )


class ControllerRole:
    """Of a node that is a controller only: it has no partitions, so its directories hold the metadata log alone."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @property
    def epoch(self) -> int:
        return UNREGISTERED

    async def start(self) -> None:
        self._broker.settings.follow(self._broker.image)
        self._broker.quorum.subscribe(self._changed)

    async def leave(self) -> None: ...

    def not_ready(self) -> list[str]:
        return []

    def directory_failed(self, directory_id: bytes) -> None: ...

    def _changed(self, image: MetadataImage, delta: MetadataDelta) -> None:
        if delta.configs.changed:
            self._broker.settings.follow(image)
