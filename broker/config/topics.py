"""The settings of topics: the values of a topic's own settings and of the broker's defaults, and the checks of own
settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moldau.broker.config.catalogue import topic_catalogue
from moldau.broker.config.config import Config, ConfigValues, object_of_settings
from moldau.broker.config.setting import Stance, Value
from moldau.broker.config.tiering import copy_lag, local_retention, tiering_refusal
from moldau.broker.config.values import InvalidValue, default_value, parse, value_text
from moldau.protocol.compression import Codec
from moldau.protocol.record_batch import TimestampType
from moldau.storage.log_config import LogConfig

_CODECS: Final = {
    "producer": None,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
_TIMESTAMP_TYPES: Final = {
    "CreateTime": TimestampType.CREATE_TIME,
    "LogAppendTime": TimestampType.LOG_APPEND_TIME,
}


def topic_values(config: Config, overrides: Mapping[str, str]) -> ConfigValues:
    """The value of each setting of a topic: its own (`overrides`), or else the broker's.

    An own setting that cannot be parsed counts as not set.
    """
    values: dict[str, Value] = {}
    for name, setting in topic_catalogue().items():
        values[name] = _broker_value(config, name, setting.defaults_from)
        if name in overrides:
            try:
                values[name] = parse(setting, overrides[name])
            except InvalidValue:
                continue
    return ConfigValues(values)


def topic_defaults(config: Config) -> dict[str, str | None]:
    """The settings of a topic without overrides, as DescribeConfigs shows them."""
    values = topic_values(config, {})
    return {name: value_text(values.value(name)) for name in topic_catalogue()}


def _broker_value(config: Config, name: str, defaults_from: tuple[str, ...]) -> Value:
    if not defaults_from:
        return default_value(topic_catalogue()[name])
    if name == "retention.ms":
        return config.log_retention_ms
    if len(defaults_from) > 1:
        return config.settings.duration_ms(defaults_from[0])
    return config.settings.value(defaults_from[0])


def log_config(config: Config, overrides: Mapping[str, str]) -> LogConfig:
    """The settings of the logs of a topic. `overrides` are the topic's own settings."""
    topic = topic_values(config, overrides)
    codec = _CODECS[topic.text("compression.type")]
    level_name = f"compression.{codec.name.lower()}.level" if codec is not None else ""
    segment_ms = topic.integer("segment.ms")
    if "compact" in topic.entries("cleanup.policy") and topic.integer("max.compaction.lag.ms") > 0:
        # The active segment is not cleaned, so it must roll in time for its records to be cleaned.
        segment_ms = min(segment_ms, topic.integer("max.compaction.lag.ms"))
    return object_of_settings(
        LogConfig,
        topic,
        "",
        segment_bytes=topic.integer_or_none("internal.segment.bytes") or topic.integer("segment.bytes"),
        segment_ms=segment_ms,
        expanded_bytes_max=max(config.integer("moldau.batch.expanded.bytes.max"), topic.integer("max.message.bytes")),
        expanded_record_bytes_max=topic.integer("max.decompressed.message.bytes"),
        compression_type=codec,
        compression_level=topic.integer(level_name) if level_name in topic_catalogue() else None,
        message_timestamp_type=_TIMESTAMP_TYPES[topic.text("message.timestamp.type")],
        is_tiered=config.flag("remote.log.storage.system.enable") and topic.flag("remote.storage.enable"),
        local_retention_ms=local_retention(topic, "ms"),
        local_retention_bytes=local_retention(topic, "bytes"),
        remote_copy_lag_ms=copy_lag(topic, "ms"),
        remote_copy_lag_bytes=copy_lag(topic, "bytes"),
    )


def is_dead_letter_queue(config: Config, overrides: Mapping[str, str]) -> bool:
    """Whether share groups may use a topic with these own settings as their dead letter queue."""
    return topic_values(config, overrides).flag("errors.deadletterqueue.group.enable")


def topic_refusal(
    config: Config, overrides: Mapping[str, str | None], existing: Mapping[str, str] | None = None
) -> str | None:
    """Why a topic's own settings are refused (INVALID_CONFIG), with Apache Kafka's message; None if they are accepted.
    `existing` are the own settings that they replace.
    """
    nulls = [name for name, text in overrides.items() if text is None]
    if nulls:
        return f"Null value not supported for topic configs: {','.join(nulls)}"
    texts = {name: text for name, text in overrides.items() if text is not None}
    for name in texts:
        if name not in topic_catalogue():
            return f"Unknown topic config name: {name}"
    for name, text in texts.items():
        try:
            parse(topic_catalogue()[name], text)
        except InvalidValue as problem:
            return str(problem)
    topic = topic_values(config, texts)
    return _conflict(topic) or tiering_refusal(config, topic, topic_values(config, existing or {}))


def _conflict(topic: ConfigValues) -> str | None:
    lowest, highest = topic.integer("min.compaction.lag.ms"), topic.integer("max.compaction.lag.ms")
    if lowest > highest:
        return f"conflict topic config setting min.compaction.lag.ms ({lowest}) > max.compaction.lag.ms ({highest})"
    return None


def topic_warnings(overrides: Mapping[str, str]) -> dict[str, str]:
    """The own settings of a topic that have no effect in this version: the reason for each, by name."""
    from moldau.broker.config.reasons import REASONS

    catalogue = topic_catalogue()
    return {
        name: f"{name} has no effect. {REASONS[catalogue[name].reason_key]}"
        for name in sorted(overrides)
        if name in catalogue and catalogue[name].stance is Stance.ACCEPTED
    }
