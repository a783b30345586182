"""The entries of DescribeConfigs for a broker, a topic, a group or a client metrics subscription."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from moldau.broker.config.catalogue import OWN_PREFIX, base_name, broker_catalogue, topic_catalogue
from moldau.broker.config.config import Config
from moldau.broker.config.layers import BrokerLayers, ConfigSource, Synonym, known_setting
from moldau.broker.config.setting import Catalogue, Scope, ValueType
from moldau.broker.config.topics import topic_defaults
from moldau.broker.config.values import InvalidValue, parse, value_text
from moldau.protocol.late_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One entry of a DescribeConfigs response. The type of an unknown setting is 0."""

    name: str
    value: str | None
    source: ConfigSource
    is_sensitive: bool
    is_read_only: bool
    type: int
    documentation: str | None
    synonyms: tuple[Synonym, ...]


AUTHORIZER_SETTINGS: Final = ("super.users", "allow.everyone.if.no.acl.found")
"""Settings of Apache Kafka's authorizer, which its brokers do not list. They are described only if they are set."""


def describe_broker(config: Config, layers: BrokerLayers) -> Iterator[ConfigEntry]:
    """Describe every setting of a broker. The caller may pause between the entries, which are of the time of the call.

    `config` is the configuration in force, `layers` are the sources of its values. Settings that Apache Kafka does not
    have are included if they are set.
    """
    names = {
        name
        for name, setting in broker_catalogue().items()
        if not setting.is_internal and not name.startswith(OWN_PREFIX) and name not in AUTHORIZER_SETTINGS
    }
    names.update(layers.static, layers.dynamic_default, layers.dynamic_broker)
    names -= {name for name in names if (known := known_setting(name)) and known.is_internal}
    for name in sorted(names):
        synonyms = layers.synonyms(name)
        is_settled = name in broker_catalogue() or config.settings.is_set(name)
        text = value_text(config.settings.value(name)) if is_settled else synonyms[0].value if synonyms else None
        yield _broker_entry(name, text, synonyms)


def describe_broker_defaults(layers: BrokerLayers) -> list[ConfigEntry]:
    """Describe the dynamic settings that hold for all brokers: those of the broker resource whose name is empty."""
    entries = []
    for name, text in sorted(layers.dynamic_default.items()):
        synonyms = [each for each in layers.synonyms(name) if each.source is ConfigSource.DYNAMIC_DEFAULT_BROKER]
        entries.append(_broker_entry(name, text, synonyms))
    return entries


def _broker_entry(name: str, text: str | None, synonyms: list[Synonym]) -> ConfigEntry:
    setting = known_setting(name)
    hidden = setting is None or setting.is_sensitive
    return ConfigEntry(
        name=name,
        value=None if hidden else text,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        is_sensitive=hidden,
        is_read_only=setting is None or setting.scope is Scope.READ_ONLY or base_name(name) != name,
        type=0 if setting is None else setting.type,
        documentation=None if setting is None else setting.documentation,
        synonyms=tuple(synonyms),
    )


def information_entry(name: str, value: str, documentation: str) -> ConfigEntry:
    """An entry by which a broker reports information about a resource, in the form of a read-only setting."""
    return ConfigEntry(
        name,
        value,
        ConfigSource.DEFAULT,
        is_sensitive=False,
        is_read_only=True,
        type=ValueType.STRING,
        documentation=documentation,
        synonyms=(),
    )


def topic_entries(config: Config, layers: BrokerLayers) -> tuple[ConfigEntry, ...]:
    """Describe every setting for a topic that has no settings of its own. All topics of a broker have these entries in
    common.
    """
    defaults = topic_defaults(config)
    entries = []
    for name, setting in topic_catalogue().items():
        if setting.is_internal:
            continue
        synonyms = layers.synonyms(setting.defaults_from[0], setting.defaults_from) if setting.defaults_from else []
        entries.append(
            ConfigEntry(
                name=name,
                value=defaults[name],
                source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
                is_sensitive=False,
                is_read_only=False,
                type=setting.type,
                documentation=setting.documentation,
                synonyms=tuple(synonyms),
            )
        )
    return tuple(entries)


def describe_topic(below: Iterable[ConfigEntry], overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Describe every setting of a topic. `overrides` are the topic's own settings; `below` are the entries of
    `topic_entries`.
    """
    return [_overridden(each, overrides[each.name]) if each.name in overrides else each for each in below]


def _overridden(below: ConfigEntry, text: str) -> ConfigEntry:
    source = ConfigSource.DYNAMIC_TOPIC
    return replace(
        below,
        value=_text_as_kafka_writes_it(topic_catalogue(), below.name, text),
        source=source,
        synonyms=(Synonym(below.name, text, source), *below.synonyms),
    )


def describe_resource(
    catalogue: Catalogue, overrides: Mapping[str, str], source: ConfigSource, layers: BrokerLayers | None = None
) -> list[ConfigEntry]:
    """Describe every setting of a group or a client metrics subscription. `overrides` are its own settings. Other
    values are those of the broker in `layers`, or the defaults if there are no layers.
    """
    below = layers or BrokerLayers({})
    entries = []
    for name in sorted(catalogue):
        setting = catalogue[name]
        if setting.is_internal:
            continue
        synonyms = [Synonym(name, overrides[name], source)] if name in overrides else []
        if setting.defaults_from:
            synonyms += below.synonyms(setting.defaults_from[0], setting.defaults_from)
        elif setting.default_text is not None and source is not ConfigSource.CLIENT_METRICS:
            synonyms.append(Synonym(name, setting.default_text, ConfigSource.DEFAULT))
        value = synonyms[0].value if synonyms else setting.default_text
        entries.append(
            ConfigEntry(
                name=name,
                value=None if value is None else _text_as_kafka_writes_it(catalogue, name, value),
                source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
                is_sensitive=False,
                is_read_only=False,
                type=setting.type,
                documentation=setting.documentation,
                synonyms=tuple(synonyms),
            )
        )
    return entries


def _text_as_kafka_writes_it(catalogue: Catalogue, name: str, text: str) -> str | None:
    try:
        return value_text(parse(catalogue[name], text))
    except InvalidValue:
        return text  # A value that another version wrote is shown unchanged.
