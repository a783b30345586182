"""The dynamic settings of the cluster: of topics, brokers, groups and client metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from moldau.kraft.image.persistent_map import PersistentMap, hash_of_text
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.records.metadata import ConfigRecord


class ResourceType(IntEnum):
    """The type of a resource that has settings; the values are those of the protocol."""

    TOPIC = 2
    BROKER = 4
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """A resource that has settings. The empty name is the cluster-wide default of the type."""

    type: int
    name: str


def hash_of_resource(resource: ConfigResource) -> int:
    return hash_of_text(resource.name) + resource.type


NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})


class ConfigsImage(NamedTuple):
    """The dynamic settings by resource. A resource without settings is left out."""

    by_resource: PersistentMap[ConfigResource, Mapping[str, str]] = PersistentMap(hash_of_resource)

    def settings_of(self, resource_type: int, name: str) -> Mapping[str, str]:
        return self.by_resource.get(ConfigResource(resource_type, name)) or NO_SETTINGS

    def snapshot_records(self) -> Iterator[object]:
        for resource, settings in self.by_resource.items():
            for name, value in settings.items():
                yield ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value)


class ConfigsDelta:
    """The settings that records changed, by resource and name; None for a removed setting."""

    __slots__ = ("changed", "image")

    def __init__(self, image: ConfigsImage) -> None:
        self.image = image
        self.changed: dict[ConfigResource, dict[str, str | None]] = {}

    def replay(self, record: ConfigRecord) -> None:
        resource = ConfigResource(record.resource_type, record.resource_name)
        self.changed.setdefault(resource, {})[record.name] = record.value

    def forget(self, resource: ConfigResource) -> None:
        """Remove all settings of a resource, because the resource was deleted."""
        names = [*(self.image.by_resource.get(resource) or ()), *self.changed.get(resource, ())]
        if names:
            self.changed[resource] = dict.fromkeys(names)

    def apply(self) -> ConfigsImage:
        if not self.changed:
            return self.image
        updates: dict[ConfigResource, Mapping[str, str] | None] = {}
        for resource, changes in self.changed.items():
            merged = {**(self.image.by_resource.get(resource) or {}), **changes}
            updates[resource] = {name: value for name, value in merged.items() if value is not None} or None
        return ConfigsImage(self.image.by_resource.with_changes(updates))
