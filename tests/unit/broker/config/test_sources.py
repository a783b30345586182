"""Settings come from a properties file, the environment and the command line."""

from __future__ import annotations

import pytest

from moldau.broker.config.loading import checked_config
from moldau.broker.config.sources import (
    MalformedOverride,
    from_environment,
    read_overrides,
    setting_name,
    single_node_defaults,
    unknown_variables,
)


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("KAFKA_NODE_ID", "node.id"),
        ("KAFKA_LISTENERS", "listeners"),
        ("KAFKA_LISTENER_NAME_INTERNAL_SSL_KEY__X", "listener.name.internal.ssl.key_x"),
        ("KAFKA_A___B__C_D", "a-b_c.d"),
        ("KAFKA_CONTROLLER_QUORUM_BOOTSTRAP_SERVERS", "controller.quorum.bootstrap.servers"),
    ],
)
def test_a_variable_of_the_official_image_names_a_setting(variable: str, name: str) -> None:
    assert setting_name(variable) == name


def test_variables_of_the_jvm_and_the_logger_are_no_settings() -> None:
    variables = {
        "KAFKA_HEAP_OPTS": "-Xmx1g",
        "KAFKA_OPTS": "x",
        "KAFKA_LOG4J_LOGGERS": "a=DEBUG",
        "KAFKA_JMX_PORT": "1",
        "KAFKA_VERSION": "4.3.1",
        "CLUSTER_ID": "x",
        "PATH": "/bin",
        "KAFKA_LOG_DIRS": "/data",
    }
    assert from_environment(variables) == {"log.dirs": "/data"}


def test_a_variable_that_names_no_setting_is_no_setting() -> None:
    """A warning about the setting `lib` would lead nowhere. Variables of a Kubernetes service are passed over."""
    variables = {
        "KAFKA_LIB": "/opt/kafka-lib",
        "KAFKA_SERVICE_HOST": "10.0.0.1",
        "KAFKA_LOG_DIRS": "/data",
        "KAFKA_MOLDAU_LOG_FORMAT": "json",
        "KAFKA_LISTENER_NAME_USERS_SSL_KEYSTORE_LOCATION": "a.pem",
        "KAFKA_ZOOKEEPER_CONNECT": "z:2181",
        "KAFKA_RSM_CONFIG_X": "y",
        "KAFKA_RLMM_CONFIG_REMOTE_LOG_METADATA_TOPIC_NUM_PARTITIONS": "5",
        "KAFKA_OPTS": "-Dx",
    }
    assert unknown_variables(variables) == ("KAFKA_LIB",)
    assert list(from_environment(variables)) == [
        "log.dirs",
        "moldau.log.format",
        "listener.name.users.ssl.keystore.location",
        "zookeeper.connect",
        "rsm.config.x",
        "rlmm.config.remote.log.metadata.topic.num.partitions",
    ]


def test_the_warning_names_the_variables() -> None:
    settings = single_node_defaults("/data") | {"lib": "x"}
    config = checked_config(settings, ["KAFKA_LIB", "KAFKA_X"])
    assert [each for each in config.warnings if "KAFKA_" in each or "lib" in each] == [
        "No setting has the name of these variables: KAFKA_LIB, KAFKA_X.",
        "lib is not a name that Apache Kafka 4.3.1 knows; it has no effect.",
    ]


def test_overrides_keep_what_follows_the_first_equals_sign() -> None:
    assert read_overrides(["a=b=c", " d = e "]) == {"a": "b=c", "d": "e"}
    with pytest.raises(MalformedOverride):
        read_overrides(["a"])
