"""Settings come from a properties file, the environment and the command line."""

from __future__ import annotations

import pytest

from broker.config.sources import MalformedOverride, from_environment, read_overrides, setting_name


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


def test_overrides_keep_what_follows_the_first_equals_sign() -> None:
    assert read_overrides(["a=b=c", " d = e "]) == {"a": "b=c", "d": "e"}
    with pytest.raises(MalformedOverride):
        read_overrides(["a"])
