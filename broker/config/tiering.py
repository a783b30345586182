"""The settings of tiered storage, their rules, and the settings of the remote log metadata topic.

DIVERGES: Apache Kafka loads a Java class for the storage (`remote.log.storage.manager.class.name`). Here
`moldau.tiered.storage` names the storage, and remote.log.storage.system.enable needs it.

DIVERGES: Apache Kafka refuses remote.storage.enable for a topic with cleanup.policy=compact. Here the log cleaner
cleans remote segments as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

from moldau.broker.config.config import Config, ConfigValues
from moldau.broker.config.internal_topics import REMOTE_LOG_METADATA_TOPIC, InternalTopic
from moldau.broker.config.values import whole_number
from moldau.protocol.late_tuple import NamedTuple
from moldau.storage.tiered.object_options import ObjectStoreOptions

SAME_AS_TOTAL_RETENTION: Final = -2
"""The value of local.retention.* that means: the value of retention.*."""
UNLIMITED: Final = -1
DISABLED: Final = (
    "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."
)
METADATA_PREFIX: Final = "rlmm.config.remote.log.metadata.topic."


class MetadataTopicSetting(NamedTuple):
    """The default and the least value of a setting of `__remote_log_metadata`. Apache Kafka's catalogue does not have
    these settings, because a plug-in reads them.
    """

    default: int
    lowest: int


METADATA_TOPIC_SETTINGS: Final = {
    f"{METADATA_PREFIX}num.partitions": MetadataTopicSetting(50, 1),
    f"{METADATA_PREFIX}replication.factor": MetadataTopicSetting(3, 1),
    f"{METADATA_PREFIX}retention.ms": MetadataTopicSetting(UNLIMITED, UNLIMITED),
}


def object_store_options(config: Config) -> ObjectStoreOptions:
    """The options for an object store: endpoint, region and time-out."""
    return ObjectStoreOptions(
        endpoint=config.text_or_none("moldau.tiered.storage.endpoint"),
        region=config.text_or_none("moldau.tiered.storage.region"),
        timeout_s=config.integer("moldau.tiered.storage.timeout.ms") / 1000,
    )


def metadata_topic(config: Config) -> InternalTopic:
    """The topic `__remote_log_metadata`, as a broker creates it at its first use."""
    return InternalTopic(
        REMOTE_LOG_METADATA_TOPIC,
        _of_metadata_topic(config, "num.partitions"),
        _of_metadata_topic(config, "replication.factor"),
        {"cleanup.policy": "delete", "retention.ms": str(_of_metadata_topic(config, "retention.ms"))},
    )


def _of_metadata_topic(config: Config, name: str) -> int:
    full_name = METADATA_PREFIX + name
    return int(str(config.originals.get(full_name, METADATA_TOPIC_SETTINGS[full_name].default)))


def local_retention(topic: ConfigValues, unit: Literal["ms", "bytes"]) -> int:
    """The local retention of a topic, in ms or bytes: local.retention.*, or retention.* if that is -2. Returns -1 for
    no limit.
    """
    local = topic.integer(f"local.retention.{unit}")
    return topic.integer(f"retention.{unit}") if local == SAME_AS_TOTAL_RETENTION else local


def copy_lag(topic: ConfigValues, unit: Literal["ms", "bytes"]) -> int:
    """The age (ms) or the size (bytes) of newer records at which a segment is copied to remote storage:
    remote.copy.lag.*, or the local retention if that is -1. The local retention may be unlimited (-1).
    """
    lag = topic.integer(f"remote.copy.lag.{unit}")
    return local_retention(topic, unit) if lag == UNLIMITED else lag


def _lag_problem(topic: ConfigValues, unit: Literal["ms", "bytes"]) -> str | None:
    """The problem of a remote.copy.lag.* that exceeds the local retention, with Apache Kafka's message; None if it does
    not.
    """
    name, retention = f"remote.copy.lag.{unit}", local_retention(topic, unit)
    lag = topic.integer(name)
    if lag > 0 and retention >= 0 and lag > retention:
        return (
            f"Invalid value {lag} for configuration {name}: Value must not exceed"
            f" local.retention.{unit} (effective value: {retention})"
        )
    return None


def broken_tiering_rules(config: Config) -> Iterator[str]:
    """The problems of a broker's settings of tiered storage."""
    for name, setting in METADATA_TOPIC_SETTINGS.items():
        text = str(config.originals[name]) if name in config.originals else None
        number = None if text is None else whole_number(text)
        if text is not None and (number is None or number < setting.lowest):
            yield f"Invalid value {text} for configuration {name}: it must be a number, at least {setting.lowest}"
    if not config.flag("remote.log.storage.system.enable") or not config.is_broker:
        return
    if config.text_or_none("moldau.tiered.storage") is None:
        yield (
            "remote.log.storage.system.enable needs moldau.tiered.storage: s3://bucket/prefix, gs://bucket/prefix, "
            "az://container/prefix, or the path of a directory"
        )
    for unit, both in (("ms", config.log_retention_ms), ("bytes", config.integer("log.retention.bytes"))):
        problem = _local_problem(config.integer(f"log.local.retention.{unit}"), both, f"log.retention.{unit}")
        if problem is not None:
            yield f"Invalid value {config.integer(f'log.local.retention.{unit}')} for configuration {problem}"


def _local_problem(local: int, both: int, both_name: str) -> str | None:
    """The problem of a local retention (`local`) that conflicts with the retention of the whole log (`both`), as the
    text after "for configuration". None if there is no conflict. `both_name` is the setting of the whole retention.
    """
    local_name = both_name.replace("retention", "local.retention")
    if local == SAME_AS_TOTAL_RETENTION or both == UNLIMITED:
        return None
    if local == UNLIMITED:
        return f"{local_name}: Value must not be -1 as {both_name} value is set as {both}."
    if local > both:
        return f"{local_name}: Value must not be more than property: {both_name} value: {both}"
    return None


def tiering_refusal(config: Config, topic: ConfigValues, before: ConfigValues) -> str | None:
    """Why a topic's values are refused because of tiered storage; None if they are not.

    `before` has the values of the topic before the change.
    """
    is_tiered = topic.flag("remote.storage.enable")
    if not is_tiered:
        is_left = before.flag("remote.storage.enable") and not topic.flag("remote.log.delete.on.disable")
        if is_left and config.flag("remote.log.storage.system.enable"):
            return (
                "It is invalid to disable remote storage without deleting remote data. If you want to keep the remote "
                "data and turn to read only, please set `remote.storage.enable=true,remote.log.copy.disable=true`. If "
                "you want to disable remote storage and delete all remote data, please set "
                "`remote.storage.enable=false,remote.log.delete.on.disable=true`."
            )
        return None
    if not config.flag("remote.log.storage.system.enable"):
        return DISABLED
    for unit in ("ms", "bytes"):
        local, both = topic.integer(f"local.retention.{unit}"), topic.integer(f"retention.{unit}")
        problem = _local_problem(local, both, f"retention.{unit}")
        if problem is not None:
            return f"Invalid value {local} for configuration {problem}"
        if topic.flag("remote.log.copy.disable") and local not in (SAME_AS_TOTAL_RETENTION, both):
            return (
                f"When `remote.log.copy.disable` is set to true, the `local.retention.{unit}` and `retention.{unit}` "
                f"must be set to the identical value or local.retention.{unit} = -2 because there will be no more logs "
                "copied to the remote storage."
            )
    return _lag_problem(topic, "bytes") or _lag_problem(topic, "ms")
