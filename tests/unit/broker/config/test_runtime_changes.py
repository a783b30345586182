"""What may change at run time, what a topic takes over, and what DescribeConfigs tells of it."""

from __future__ import annotations

import pytest

from moldau.broker.config.altering import broker_change_refusal, effective_config
from moldau.broker.config.catalogue import OWN_PREFIX, broker_catalogue, group_catalogue
from moldau.broker.config.describing import (
    AUTHORIZER_SETTINGS,
    ConfigEntry,
    describe_broker,
    describe_broker_defaults,
    describe_resource,
    describe_topic,
    topic_entries,
)
from moldau.broker.config.layers import BrokerLayers, ConfigSource, Synonym
from moldau.broker.config.loading import checked_config
from moldau.broker.config.topics import log_config, topic_refusal, topic_warnings
from moldau.protocol.compression import Codec
from moldau.protocol.record_batch import TimestampType

STATIC = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": "/data",
    "log.retention.minutes": "600",
    "log.roll.hours": "5",
}
CONFIG = checked_config(STATIC)
LAYERS = BrokerLayers.from_config(CONFIG)


def broker_entry(name: str, layers: BrokerLayers = LAYERS) -> ConfigEntry:
    (entry,) = [each for each in describe_broker(effective_config(layers), layers) if each.name == name]
    return entry


def topic_entry(name: str, overrides: dict[str, str], layers: BrokerLayers = LAYERS) -> ConfigEntry:
    entries = describe_topic(topic_entries(effective_config(layers), layers), overrides)
    (entry,) = [each for each in entries if each.name == name]
    return entry


def synonyms(entry: ConfigEntry) -> list[tuple[str, str | None, ConfigSource]]:
    return [(each.name, each.value, each.source) for each in entry.synonyms]


# --- what is described; observed of Apache Kafka 4.3.1 with the same settings ---


def test_a_static_setting_names_its_source_and_its_default() -> None:
    entry = broker_entry("log.roll.hours")
    assert (entry.value, entry.source, entry.is_read_only) == ("5", ConfigSource.STATIC_BROKER, True)
    assert synonyms(entry) == [
        ("log.roll.hours", "5", ConfigSource.STATIC_BROKER),
        ("log.roll.hours", "168", ConfigSource.DEFAULT),
    ]


def test_the_two_names_of_a_node_are_both_static() -> None:
    assert broker_entry("broker.id").source is broker_entry("node.id").source is ConfigSource.STATIC_BROKER
    assert broker_entry("broker.id").value == "1"


def test_a_duration_that_only_another_unit_sets_has_no_value_of_its_own() -> None:
    entry = broker_entry("log.retention.ms")
    assert (entry.value, entry.source, entry.synonyms) == (None, ConfigSource.DEFAULT, ())


def test_what_is_set_at_run_time_hides_what_is_below() -> None:
    layers = BrokerLayers.from_config(
        CONFIG, {"log.segment.bytes": "2000000", "log.retention.ms": "777777"}, {"log.segment.bytes": "3000000"}
    )
    entry = broker_entry("log.segment.bytes", layers)
    assert entry.value == "3000000"
    assert synonyms(entry) == [
        ("log.segment.bytes", "3000000", ConfigSource.DYNAMIC_BROKER),
        ("log.segment.bytes", "2000000", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ("log.segment.bytes", "1073741824", ConfigSource.DEFAULT),
    ]
    retention = topic_entry("retention.ms", {}, layers)
    assert (retention.value, retention.source) == ("777777", ConfigSource.DYNAMIC_DEFAULT_BROKER)
    assert synonyms(retention) == [
        ("log.retention.ms", "777777", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ("log.retention.minutes", "600", ConfigSource.STATIC_BROKER),
        ("log.retention.hours", "168", ConfigSource.DEFAULT),
    ]


def test_a_secret_is_sensitive_and_never_shown() -> None:
    layers = BrokerLayers.from_config(CONFIG, {}, {"sasl.jaas.config": "swordfish"})
    entry = broker_entry("sasl.jaas.config", layers)
    assert (entry.value, entry.is_sensitive, entry.type) == (None, True, 9)
    assert "swordfish" not in repr(entry)


def test_a_name_that_nobody_knows_is_shown_without_its_value() -> None:
    layers = BrokerLayers.from_config(CONFIG, {"unknown.thing": "5"})
    entry = broker_entry("unknown.thing", layers)
    assert (entry.value, entry.is_sensitive, entry.is_read_only, entry.type) == (None, True, True, 0)
    assert entry.synonyms == (Synonym("unknown.thing", None, ConfigSource.DYNAMIC_DEFAULT_BROKER),)


def test_the_resource_without_a_name_shows_what_is_set_for_all_brokers() -> None:
    layers = BrokerLayers.from_config(CONFIG, {"log.segment.bytes": "2000000"}, {"log.segment.bytes": "3000000"})
    (entry,) = describe_broker_defaults(layers)
    assert (entry.name, entry.value, entry.source) == (
        "log.segment.bytes",
        "2000000",
        ConfigSource.DYNAMIC_DEFAULT_BROKER,
    )


def test_internal_settings_are_not_described() -> None:
    names = {each.name for each in describe_broker(CONFIG, LAYERS)}
    assert "log.initial.task.delay.ms" not in names
    theirs = [s for s in broker_catalogue().values() if not s.name.startswith(OWN_PREFIX)]
    assert len(names) == len([s for s in theirs if not s.is_internal]) - len(AUTHORIZER_SETTINGS)
    assert names.isdisjoint(AUTHORIZER_SETTINGS)
    assert "internal.segment.bytes" not in {each.name for each in topic_entries(CONFIG, LAYERS)}


def test_a_topic_shows_its_own_value_before_the_brokers() -> None:
    entry = topic_entry("segment.bytes", {"segment.bytes": " 4000000"})
    assert (entry.value, entry.source, entry.is_read_only) == ("4000000", ConfigSource.DYNAMIC_TOPIC, False)
    assert [each.source for each in entry.synonyms] == [ConfigSource.DYNAMIC_TOPIC, ConfigSource.DEFAULT]


def test_a_duration_that_a_topic_takes_from_another_unit_has_no_synonym() -> None:
    entry = topic_entry("segment.ms", {})
    assert (entry.value, entry.source, entry.synonyms) == ("18000000", ConfigSource.DEFAULT, ())


def test_a_group_shows_its_overrides_and_defaults() -> None:
    overrides = {"consumer.session.timeout.ms": "50000"}
    entries = {each.name: each for each in describe_resource(group_catalogue(), overrides, ConfigSource.GROUP)}
    assert entries["consumer.session.timeout.ms"].source is ConfigSource.GROUP
    assert entries["consumer.heartbeat.interval.ms"].value == "5000"
    assert entries.keys().isdisjoint(each.name for each in group_catalogue().values() if each.is_internal)


# --- what a topic takes ---


def test_a_log_takes_the_brokers_settings_and_the_topics_overrides() -> None:
    config = log_config(
        CONFIG,
        {
            "segment.bytes": "4000000",
            "cleanup.policy": "compact,delete",
            "compression.type": "zstd",
            "compression.zstd.level": "7",
            "message.timestamp.type": "LogAppendTime",
        },
    )
    assert (config.segment_bytes, config.segment_ms, config.retention_ms) == (4_000_000, 18_000_000, 36_000_000)
    assert (config.compression_type, config.compression_level) == (Codec.ZSTD, 7)
    assert config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
    assert config.is_compacted and config.has_delete_policy


def test_a_log_without_overrides_has_apache_kafkas_defaults() -> None:
    from moldau.storage.log_config import LogConfig

    plain = {name: text for name, text in STATIC.items() if not name.startswith(("log.ret", "log.roll"))}
    assert log_config(checked_config(plain), {}) == LogConfig()


def test_what_changes_for_all_brokers_reaches_the_logs() -> None:
    layers = BrokerLayers.from_config(CONFIG, {"log.retention.ms": "7", "message.max.bytes": "5"})
    config = log_config(effective_config(layers), {})
    assert (config.retention_ms, config.max_message_bytes) == (7, 5)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"foo.bar": "1"}, "Unknown topic config name: foo.bar"),
        ({"retention.ms": None}, "Null value not supported for topic configs: retention.ms"),
        ({"segment.bytes": "abc"}, "Invalid value abc for configuration segment.bytes: Not a number of type INT"),
        ({"segment.bytes": "1"}, "Invalid value 1 for configuration segment.bytes: Value must be at least 1048576"),
        ({"retention.ms": ""}, "Invalid value  for configuration retention.ms: Not a number of type LONG"),
        (
            {"min.cleanable.dirty.ratio": "2"},
            "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
        ),
        (
            {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
            "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
        ),
        (
            {"remote.storage.enable": "true"},
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage.",
        ),
        (
            {"leader.replication.throttled.replicas": "x"},
            "Invalid value [x] for configuration leader.replication.throttled.replicas: "
            "leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the following "
            "format: [partitionId]:[brokerId],[partitionId]:[brokerId],...",
        ),
        ({"cleanup.policy": ""}, None),
        ({"cleanup.policy": "delete,delete"}, None),
        ({"retention.bytes": "-5"}, None),
        ({"internal.segment.bytes": "5"}, None),
        ({"leader.replication.throttled.replicas": "*"}, None),
    ],
)
def test_a_topics_overrides_are_taken_or_refused_as_by_apache_kafka(
    overrides: dict[str, str | None], message: str | None
) -> None:
    assert topic_refusal(CONFIG, overrides) == message


def test_an_override_without_effect_is_told() -> None:
    warnings = topic_warnings({"preallocate": "true", "segment.bytes": "4000000"})
    assert [*warnings] == ["preallocate"]
    assert warnings["preallocate"].startswith("preallocate has no effect")


# --- what may be altered ---


AT_START = "{} cannot be changed at run time in this version; change it in the file and start again."


@pytest.mark.parametrize(
    ("name", "value", "of_one", "of_all"),
    [
        ("log.segment.bytes", "2000000", None, None),
        ("num.io.threads", "9", None, None),
        ("unknown.x", "1", None, None),
        ("leader.replication.throttled.rate", "5", None, None),
        ("node.id", "5", "Cannot update these configs dynamically: [node.id]", "="),
        ("log.retention.hours", "5", "Cannot update these configs dynamically: [log.retention.hours]", "="),
        ("num.partitions", "4", "Cannot update these configs dynamically: [num.partitions]", "="),
        (
            "log.segment.bytes",
            "1",
            "Invalid value 1 for configuration log.segment.bytes: Value must be at least 1048576",
            "=",
        ),
        (
            "log.retention.ms",
            "0",
            "requirement failed: log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
            "=",
        ),
        ("group.share.assignment.interval.ms", "15000", None, None),
        (
            "group.share.assignment.interval.ms",
            "15001",
            "group.share.assignment.interval.ms must be less than or equal to group.share.max.assignment.interval.ms",
            "=",
        ),
        ("log.roll.ms", "0", "requirement failed: log.roll.ms must be greater than or equal to 1", "="),
        (
            "ssl.keystore.location",
            "x",
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            "[ssl.keystore.location]",
            "=",
        ),
        (
            "sasl.jaas.config",
            "foo",
            AT_START.format("sasl.jaas.config"),
            "Cannot update these configs at default cluster level, broker id must be specified: [sasl.jaas.config]",
        ),
        (
            "listener.name.plaintext.ssl.keystore.location",
            "x",
            AT_START.format("listener.name.plaintext.ssl.keystore.location"),
            "Cannot update these configs at default cluster level, broker id must be specified: "
            "[listener.name.plaintext.ssl.keystore.location]",
        ),
    ],
)
def test_a_brokers_setting_changes_at_run_time_where_apache_kafkas_does(
    name: str, value: str, of_one: str | None, of_all: str | None
) -> None:
    for at_default_level, message in ((False, of_one), (True, of_one if of_all == "=" else of_all)):
        refusal = broker_change_refusal(LAYERS, {name: value}, at_default_level=at_default_level)
        assert refusal == message


IN_A_STEP = (
    "Invalid value org.apache.kafka.common.config.ConfigException: {} for configuration Invalid dynamic configuration"
)
THREADS = "Dynamic thread count update validation failed for {}={}, value should {} value {}"
LESS, MORE = "be at least half the current", "not be greater than double the current"
LOCAL = "Invalid value {} for configuration log.local.retention.{}: Value must not be {}"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"num.io.threads": "16", "num.network.threads": "1", "background.threads": "5"}, None),
        ({"num.io.threads": "17"}, IN_A_STEP.format(THREADS.format("num.io.threads", 17, MORE, 8))),
        ({"num.io.threads": "3"}, IN_A_STEP.format(THREADS.format("num.io.threads", 3, LESS, 8))),
        ({"num.network.threads": "7"}, IN_A_STEP.format(THREADS.format("num.network.threads", 7, MORE, 3))),
        (
            {"listener.name.plaintext.num.network.threads": "7"},
            IN_A_STEP.format(THREADS.format("num.network.threads", 7, MORE, 3)),
        ),
        ({"listener.name.other.num.network.threads": "7"}, None),
        (
            {"remote.log.reader.threads": "4"},
            IN_A_STEP.format(THREADS.format("remote.log.reader.threads", 4, LESS, 10)),
        ),
        ({"log.cleaner.threads": "2"}, None),
        (
            {"log.cleaner.threads": "3"},
            IN_A_STEP.format("Log cleaner threads cannot be increased to more than double the current value 1"),
        ),
        ({"log.cleaner.threads": "0"}, IN_A_STEP.format("Log cleaner threads should be at least 1")),
        (
            {"log.cleaner.threads": "128"},
            "requirement failed: log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
        ),
        (
            {"log.cleaner.dedupe.buffer.size": "1048576"},
            "requirement failed: log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
        ),
        ({"log.cleaner.dedupe.buffer.size": str((1 << 20) + 1)}, None),
        ({"max.connections": "0"}, IN_A_STEP.format("Invalid max.connections 0")),
        ({"listener.name.plaintext.max.connections": "0"}, IN_A_STEP.format("Invalid max.connections 0")),
        ({"listener.name.other.max.connections": "0"}, None),
        ({"max.connection.creation.rate": "0"}, IN_A_STEP.format("Invalid max.connection.creation.rate 0")),
        (
            {"log.retention.ms": "1000", "log.local.retention.ms": "2000"},
            IN_A_STEP.format(LOCAL.format(2000, "ms", "more than log.retention.ms property value: 1000")),
        ),
        (
            {"log.retention.bytes": "1000", "log.local.retention.bytes": "-1"},
            IN_A_STEP.format(LOCAL.format(-1, "bytes", "-1 as log.retention.bytes value is set as 1000.")),
        ),
        ({"log.retention.ms": "-1", "log.local.retention.ms": "2000"}, None),
        ({"log.retention.ms": "2000", "log.local.retention.ms": "2000"}, None),
    ],
)
def test_a_step_that_is_too_far_is_refused_as_by_apache_kafka(changed: dict[str, str], message: str | None) -> None:
    """Observed of 4.3.1, but for 0 cleaner threads, if it says "/ by zero"."""
    for at_default_level in (False, True):
        if not at_default_level or not any(name.startswith("listener.name") for name in changed):
            assert broker_change_refusal(LAYERS, changed, at_default_level=at_default_level) == message


def test_a_step_is_measured_from_the_value_in_force() -> None:
    """Observed of 4.3.1: a value of this broker hides that of all, and a deletion is a step back to the file's."""
    layers = BrokerLayers.from_config(CONFIG, {}, {"num.io.threads": "12"})
    assert broker_change_refusal(layers, {"num.io.threads": "24"}, at_default_level=False) is None
    assert broker_change_refusal(layers, {"num.io.threads": "25"}, at_default_level=False) is not None
    assert broker_change_refusal(layers, {"num.io.threads": "100"}, at_default_level=True) is None
    back = IN_A_STEP.format(THREADS.format("num.io.threads", 8, LESS, 52))
    assert (
        broker_change_refusal(BrokerLayers.from_config(CONFIG, {"num.io.threads": "52"}), {}, at_default_level=True)
        == back
    )


def test_an_interval_out_of_bounds_is_refused_also_where_this_broker_has_a_value_of_its_own() -> None:
    name = "group.consumer.assignment.interval.ms"
    layers = BrokerLayers.from_config(CONFIG, {}, {name: "3000"})
    refusal = broker_change_refusal(layers, {name: "15001"}, at_default_level=True)
    assert refusal == f"{name} must be less than or equal to group.consumer.max.assignment.interval.ms"


def test_what_this_version_cannot_change_at_run_time_is_refused() -> None:
    for name, value in (("listeners", "PLAINTEXT://:1,CONTROLLER://:2"), ("metric.reporters", "a.B")):
        refusal = broker_change_refusal(LAYERS, {name: value}, at_default_level=False)
        assert refusal is not None and name in refusal


def test_a_dynamic_text_that_cannot_be_read_counts_as_not_set() -> None:
    config = effective_config(BrokerLayers.from_config(CONFIG, {"log.segment.bytes": "x", "num.partitions": "7"}))
    assert config.integer("log.segment.bytes") == 1 << 30
    assert config.integer("num.partitions") == 1


def test_a_change_in_a_finer_unit_hides_the_coarser_one() -> None:
    config = effective_config(BrokerLayers.from_config(CONFIG, {"log.retention.ms": "5"}))
    assert config.log_retention_ms == 5
    assert config.settings.integer_or_none("log.retention.minutes") is None


def test_names_of_our_own_are_told_where_they_are_set() -> None:
    layers = BrokerLayers.from_config(CONFIG)
    assert not [each.name for each in describe_broker(CONFIG, layers) if each.name.startswith(OWN_PREFIX)]
    config = checked_config({**STATIC, "moldau.log.format": "json"})
    (entry,) = [
        each for each in describe_broker(config, BrokerLayers.from_config(config)) if each.name.startswith(OWN_PREFIX)
    ]
    assert (entry.name, entry.value, entry.source) == ("moldau.log.format", "json", ConfigSource.STATIC_BROKER)
