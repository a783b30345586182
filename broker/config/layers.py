"""The layers of a broker's settings: dynamic for one broker, dynamic for all brokers, static, and default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import IntEnum
from typing import Final

from moldau.broker.config.catalogue import base_name, broker_catalogue, dynamic_only_catalogue, unit_synonyms
from moldau.broker.config.config import Config
from moldau.broker.config.setting import Password, Scope, Setting, Stance
from moldau.protocol.late_dataclass import dataclass


class ConfigSource(IntEnum):
    """The source of a value, with the numbers of DescribeConfigs."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


@dataclass(frozen=True, slots=True)
class Synonym:
    """A value that a source has for a setting. In a list of synonyms the first value is in force."""

    name: str
    value: str | None
    source: ConfigSource


_LISTENERS: Final = ("listeners", "listener.security.protocol.map")
_SECURITY_PREFIXES: Final = ("ssl.", "sasl.")


@dataclass(frozen=True, slots=True)
class BrokerLayers:
    """The configured settings of a broker, as texts, in layers."""

    static: Mapping[str, str | Password]
    dynamic_default: Mapping[str, str] = field(default_factory=dict)  # Dynamic values for all brokers.
    dynamic_broker: Mapping[str, str] = field(default_factory=dict)  # Dynamic values for this broker.

    @classmethod
    def from_config(
        cls,
        config: Config,
        dynamic_default: Mapping[str, str] | None = None,
        dynamic_broker: Mapping[str, str] | None = None,
    ) -> BrokerLayers:
        """The layers of a node: the static settings of its configuration, and the given dynamic settings."""
        node_id = str(config.node_id)
        static = {**config.originals, "node.id": node_id, "broker.id": node_id}
        return cls(static, dynamic_default or {}, dynamic_broker or {})

    def merged_settings(self) -> dict[str, str | Password]:
        """Merge the layers into one text for each setting. A value of a higher layer replaces those of lower layers,
        also those in another unit.
        """
        flat = dict(self.static)
        for layer, is_default in ((self.dynamic_default, True), (self.dynamic_broker, False)):
            for name, text in layer.items():
                setting = known_setting(name)
                if setting is None or not is_dynamic(name, setting, at_default_level=is_default):
                    continue
                if needs_restart(name):
                    continue
                for synonym in unit_synonyms(name):
                    flat.pop(synonym, None)
                flat[name] = text
        return flat

    def synonyms(self, name: str, names: tuple[str, ...] | None = None) -> list[Synonym]:
        """The values that the layers and the default have for a setting, the value in force first.

        A setting may have other names, such as log.retention.hours for log.retention.ms. As in Apache Kafka, the list
        begins with the first source that has a value under `name`. If no source has one, the list is empty.
        """
        if names is None:
            base = base_name(name)
            names = unit_synonyms(name) if base == name else (name, base)
        found: list[Synonym] = []
        layers = (
            (self.dynamic_broker, ConfigSource.DYNAMIC_BROKER),
            (self.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER),
            (self.static, ConfigSource.STATIC_BROKER),
        )
        for layer, source in layers:
            found += [_synonym(each, layer[each], source) for each in names if each in layer]
        for each in names:
            setting = broker_catalogue().get(each)
            if setting is not None and setting.default_text is not None:
                found.append(_synonym(each, setting.default_text, ConfigSource.DEFAULT))
        while found and found[0].name != name:
            del found[0]
        return found


def known_setting(name: str) -> Setting | None:
    """The catalogue's entry for a broker setting, also one that can only be set at run time; None if there is none."""
    return broker_catalogue().get(base_name(name)) or dynamic_only_catalogue().get(name)


def needs_restart(name: str) -> bool:
    """Whether this version reads the setting only at start, although Apache Kafka changes it at run time. This version
    opens its listeners only once, and reads no file that a dynamic setting names. Key and trust stores that are
    replaced on disk are reloaded without a change of settings."""
    setting = broker_catalogue().get(base_name(name))
    if setting is None or setting.scope is Scope.READ_ONLY or setting.stance is not Stance.HONOURED:
        return False
    return setting.name in _LISTENERS or setting.name.startswith(_SECURITY_PREFIXES)


def is_dynamic(name: str, setting: Setting, *, at_default_level: bool) -> bool:
    """Whether a setting may be changed at run time: for all brokers (`at_default_level`), or for one."""
    if base_name(name) != name:
        return not (at_default_level and setting.scope is Scope.PER_BROKER)
    return setting.scope is Scope.CLUSTER_WIDE or (setting.scope is Scope.PER_BROKER and not at_default_level)


def _synonym(name: str, text: str | Password, source: ConfigSource) -> Synonym:
    setting = known_setting(name)
    hidden = setting is None or setting.is_sensitive or isinstance(text, Password)
    return Synonym(name, None if hidden else str(text), source)
