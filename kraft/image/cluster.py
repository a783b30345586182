"""The registrations of the cluster's nodes: brokers and controllers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from moldau.kraft.features import SupportedRange
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.records.metadata import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ControllerEndpoint,
    ControllerFeature,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterControllerRecord,
)

FENCE: Final = 1
UNFENCE: Final = -1
UNCHANGED: Final = 0
"""The values of `fenced` in a BrokerRegistrationChangeRecord: the record fences the broker, unfences it, or leaves it
as it is.
"""
ENTERS_CONTROLLED_SHUTDOWN: Final = 1
"""The value of `in_controlled_shutdown` that begins a controlled shutdown; no record ends a controlled shutdown."""
MIGRATING_DIRECTORY: Final = bytes(16)
"""The directory id of a replica whose directory is not named in the metadata."""
UNASSIGNED_DIRECTORY: Final = (1).to_bytes(16, "big")
"""The directory id of a replica whose broker has yet to choose a directory and report it."""
LOST_DIRECTORY: Final = (2).to_bytes(16, "big")
"""The directory id of a replica whose copy on the broker is damaged, so that the broker does not serve it."""


class AdvertisedEndpoint(NamedTuple):
    """One advertised listener of a node: its name, address and security protocol."""

    host: str
    port: int
    security_protocol: int


def endpoints_of(points: Iterable[BrokerEndpoint | ControllerEndpoint]) -> dict[str, AdvertisedEndpoint]:
    return {point.name: AdvertisedEndpoint(point.host, point.port, point.security_protocol) for point in points}


def features_of(features: Iterable[BrokerFeature | ControllerFeature]) -> dict[str, SupportedRange]:
    return {each.name: SupportedRange(each.min_supported_version, each.max_supported_version) for each in features}


class Broker(NamedTuple):
    """The registration of a broker. Its epoch is the offset of the record that registered this incarnation."""

    id: int
    epoch: int
    incarnation_id: bytes
    endpoints: Mapping[str, AdvertisedEndpoint]
    """The endpoints by listener name."""
    features: Mapping[str, SupportedRange]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    directories: tuple[bytes, ...]
    cordoned_directories: tuple[bytes, ...] | None

    @classmethod
    def from_record(cls, record: RegisterBrokerRecord) -> Broker:
        cordoned = record.cordoned_log_dirs
        return cls(
            id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            endpoints=endpoints_of(record.end_points),
            features=features_of(record.features),
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            directories=tuple(record.log_dirs),
            cordoned_directories=None if cordoned is None else tuple(cordoned),
        )

    def with_change(self, record: BrokerRegistrationChangeRecord) -> Broker:
        cordoned = record.cordoned_log_dirs
        return self._replace(
            fenced=self.fenced if record.fenced == UNCHANGED else record.fenced == FENCE,
            in_controlled_shutdown=self.in_controlled_shutdown
            or record.in_controlled_shutdown == ENTERS_CONTROLLED_SHUTDOWN,
            directories=tuple(record.log_dirs) or self.directories,
            cordoned_directories=self.cordoned_directories if cordoned is None else tuple(cordoned),
        )

    @property
    def is_active(self) -> bool:
        """Whether the broker may lead partitions and get new replicas."""
        return not self.fenced and not self.in_controlled_shutdown

    def has_online_directory(self, directory_id: bytes) -> bool:
        """Whether a replica in this directory can serve. A replica without an assigned directory can."""
        if directory_id == LOST_DIRECTORY:
            return False
        if not self.directories or directory_id in (MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY):
            return True
        return directory_id in self.directories

    def to_record(self) -> RegisterBrokerRecord:
        cordoned = self.cordoned_directories
        return RegisterBrokerRecord(
            broker_id=self.id,
            incarnation_id=self.incarnation_id,
            broker_epoch=self.epoch,
            end_points=[
                BrokerEndpoint(name=name, host=host, port=port, security_protocol=security)
                for name, (host, port, security) in self.endpoints.items()
            ],
            features=[
                BrokerFeature(name=name, min_supported_version=first, max_supported_version=last)
                for name, (first, last) in self.features.items()
            ],
            rack=self.rack,
            fenced=self.fenced,
            in_controlled_shutdown=self.in_controlled_shutdown,
            log_dirs=list(self.directories),
            cordoned_log_dirs=None if cordoned is None else list(cordoned),
        )


class ControllerNode(NamedTuple):
    """The registration of a controller."""

    id: int
    incarnation_id: bytes
    endpoints: Mapping[str, AdvertisedEndpoint]
    features: Mapping[str, SupportedRange]
    zk_migration_ready: bool

    @classmethod
    def from_record(cls, record: RegisterControllerRecord) -> ControllerNode:
        return cls(
            id=record.controller_id,
            incarnation_id=record.incarnation_id,
            endpoints=endpoints_of(record.end_points),
            features=features_of(record.features),
            zk_migration_ready=record.zk_migration_ready,
        )

    def to_record(self) -> RegisterControllerRecord:
        return RegisterControllerRecord(
            controller_id=self.id,
            incarnation_id=self.incarnation_id,
            zk_migration_ready=self.zk_migration_ready,
            end_points=[
                ControllerEndpoint(name=name, host=host, port=port, security_protocol=security)
                for name, (host, port, security) in self.endpoints.items()
            ],
            features=[
                ControllerFeature(name=name, min_supported_version=first, max_supported_version=last)
                for name, (first, last) in self.features.items()
            ],
        )


class ClusterImage(NamedTuple):
    """All registered nodes by id."""

    brokers: Mapping[int, Broker] = MappingProxyType({})
    controllers: Mapping[int, ControllerNode] = MappingProxyType({})

    def is_active(self, broker_id: int) -> bool:
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.is_active

    def has_online_directory(self, broker_id: int, directory_id: bytes) -> bool:
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.has_online_directory(directory_id)

    def snapshot_records(self) -> Iterator[object]:
        for _, broker in sorted(self.brokers.items()):
            yield broker.to_record()
        for _, controller in sorted(self.controllers.items()):
            yield controller.to_record()


class ClusterDelta:
    """The nodes that records changed, by id; None for a node that was unregistered."""

    __slots__ = ("brokers", "controllers", "image")

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self.brokers: dict[int, Broker | None] = {}
        self.controllers: dict[int, ControllerNode | None] = {}

    def replay_register(self, record: RegisterBrokerRecord) -> None:
        self.brokers[record.broker_id] = Broker.from_record(record)

    def replay_unregister(self, broker_id: int) -> None:
        self.brokers[broker_id] = None

    def replay_change(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self.brokers.get(record.broker_id) or self.image.brokers[record.broker_id]
        assert broker.epoch == record.broker_epoch, f"a change of broker {broker.id} in epoch {record.broker_epoch}"
        self.brokers[broker.id] = broker.with_change(record)

    def replay_controller(self, record: RegisterControllerRecord) -> None:
        self.controllers[record.controller_id] = ControllerNode.from_record(record)

    def replay_unregister_controller(self, record: UnregisterControllerRecord) -> None:
        self.controllers[record.controller_id] = None

    def apply(self) -> ClusterImage:
        if not (self.brokers or self.controllers):
            return self.image
        brokers = {**self.image.brokers, **self.brokers}
        controllers = {**self.image.controllers, **self.controllers}
        return ClusterImage(
            {node_id: broker for node_id, broker in brokers.items() if broker is not None},
            {node_id: controller for node_id, controller in controllers.items() if controller is not None},
        )
