"""Settings of tiered storage: which go together, of a broker and of a topic."""

from __future__ import annotations

import pytest

from moldau.broker.config.config import ConfigError
from moldau.broker.config.loading import checked_config
from moldau.broker.config.tiering import metadata_topic
from moldau.broker.config.topics import log_config, topic_refusal
from tests.support.node import PROPERTIES

TIERED = PROPERTIES | {"remote.log.storage.system.enable": "true", "moldau.tiered.storage": "/bucket"}
DISABLING = (
    "It is invalid to disable remote storage without deleting remote data. If you want to keep the remote "
    "data and turn to read only, please set `remote.storage.enable=true,remote.log.copy.disable=true`. If "
    "you want to disable remote storage and delete all remote data, please set "
    "`remote.storage.enable=false,remote.log.delete.on.disable=true`."
)


def test_tiered_storage_needs_a_storage() -> None:
    with pytest.raises(ConfigError, match=r"needs moldau\.tiered\.storage"):
        checked_config(PROPERTIES | {"remote.log.storage.system.enable": "true"})


def test_a_java_class_is_refused_with_the_setting_that_takes_its_place() -> None:
    with pytest.raises(ConfigError, match=r"moldau\.tiered\.storage names the storage"):
        checked_config(TIERED | {"remote.log.storage.manager.class.name": "a.B"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"log.local.retention.ms": "700000000"}, "Value must not be more than property: log.retention.ms"),
        ({"log.local.retention.ms": "-1"}, "Value must not be -1 as log.retention.ms"),
        ({"log.retention.bytes": "5", "log.local.retention.bytes": "6"}, "log.retention.bytes value: 5"),
        ({"rlmm.config.remote.log.metadata.topic.num.partitions": "0"}, "at least 1"),
        ({"rlmm.config.remote.log.metadata.topic.num.partitions": "x"}, "at least 1"),
    ],
)
def test_settings_of_a_broker_that_do_not_go_together_stop_the_start(change: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        checked_config(TIERED | change)


def test_the_metadata_topic_is_that_of_apache_kafka_unless_set() -> None:
    topic = metadata_topic(checked_config(TIERED))
    assert topic == (
        "__remote_log_metadata",
        50,
        3,
        {"cleanup.policy": "delete", "retention.ms": "-1"},
    )
    config = checked_config(TIERED | {"rlmm.config.remote.log.metadata.topic.num.partitions": "4"})
    assert metadata_topic(config).partitions == 4
    assert not any("rlmm" in warning for warning in config.warnings)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"remote.storage.enable": "true"}, None),
        ({"remote.storage.enable": "true", "local.retention.ms": "1000"}, None),
        ({"remote.storage.enable": "true", "cleanup.policy": "compact"}, None),
        ({"remote.storage.enable": "true", "cleanup.policy": "compact,delete"}, None),
        (
            {"remote.storage.enable": "true", "retention.ms": "5", "local.retention.ms": "6"},
            "Invalid value 6 for configuration local.retention.ms: Value must not be more than property: "
            "retention.ms value: 5",
        ),
        (
            {"remote.storage.enable": "true", "retention.bytes": "5", "local.retention.bytes": "-1"},
            "Invalid value -1 for configuration local.retention.bytes: Value must not be -1 as retention.bytes value "
            "is set as 5.",
        ),
        ({"remote.storage.enable": "true", "remote.log.copy.disable": "true"}, None),
        (
            {"remote.storage.enable": "true", "remote.log.copy.disable": "true", "local.retention.ms": "5"},
            "When `remote.log.copy.disable` is set to true, the `local.retention.ms` and `retention.ms` must be set to "
            "the identical value or local.retention.ms = -2 because there will be no more logs copied to the remote "
            "storage.",
        ),
    ],
)
def test_settings_of_a_topic(overrides: dict[str, str], message: str | None) -> None:
    assert topic_refusal(checked_config(TIERED), overrides) == message


def test_tiering_of_a_topic_ends_only_with_its_remote_data() -> None:
    config, before = checked_config(TIERED), {"remote.storage.enable": "true"}
    assert topic_refusal(config, {}, before) == DISABLING
    assert topic_refusal(config, {"remote.storage.enable": "false"}, before) == DISABLING
    assert topic_refusal(config, {"remote.log.delete.on.disable": "true"}, before) is None


def test_local_retention_is_that_of_both_tiers_unless_set() -> None:
    config = checked_config(TIERED)
    log = log_config(config, {"remote.storage.enable": "true", "retention.ms": "5000"})
    assert (log.is_tiered, log.local_retention_ms, log.local_retention_bytes) == (True, 5000, -1)
    log = log_config(config, {"retention.ms": "5000", "local.retention.ms": "7"})
    assert (log.is_tiered, log.local_retention_ms) == (False, 7)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"remote.copy.lag.ms": "6", "local.retention.ms": "5"}, "lag.ms: Value must not exceed local.retention.ms"),
        ({"remote.copy.lag.ms": "6", "retention.ms": "5"}, "lag.ms: Value must not exceed local.retention.ms"),
        (
            {"remote.copy.lag.bytes": "9", "local.retention.bytes": "7", "retention.bytes": "8"},
            "Invalid value 9 for configuration remote.copy.lag.bytes: Value must not exceed local.retention.bytes"
            " (effective value: 7)",
        ),
        ({"remote.copy.lag.ms": "5", "local.retention.ms": "5"}, None),
        ({"remote.copy.lag.bytes": "9"}, None),
        ({"remote.copy.lag.ms": "-1"}, None),
    ],
)
def test_the_lag_of_copies_is_at_most_local_retention(overrides: dict[str, str], message: str | None) -> None:
    refusal = topic_refusal(checked_config(TIERED), {"remote.storage.enable": "true"} | overrides)
    assert refusal is None if message is None else refusal is not None and message in refusal
    assert topic_refusal(checked_config(TIERED), overrides) is None, "of a topic with one tier it is not asked"


def test_a_lag_of_minus_one_is_local_retention() -> None:
    config = checked_config(TIERED | {"log.remote.copy.lag.ms": "60000"})
    plain = log_config(config, {})
    assert (plain.remote_copy_lag_ms, plain.remote_copy_lag_bytes) == (60_000, -1)
    of_local = {"remote.copy.lag.ms": "-1", "remote.copy.lag.bytes": "-1", "local.retention.ms": "7"}
    found = log_config(config, of_local | {"retention.bytes": "9"})
    assert (found.remote_copy_lag_ms, found.remote_copy_lag_bytes) == (7, 9)
