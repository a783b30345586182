"""Settings come from a properties file, the environment and the command line."""

from __future__ import annotations

import pytest

from broker.config.properties import MalformedProperties, read_properties
from broker.config.sources import MalformedOverride, from_environment, read_overrides, setting_name


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("a=1\nb = 2\nc:3\nd : 4\ne 5\nf\t=\t6", {"a": "1", "b": "2", "c": "3", "d": "4", "e": "5", "f": "6"}),
        ("# a=1\n! b=2\n   # c=3\n\n  \n d=4", {"d": "4"}),
        ("a=1,\\\n   2,\\\n   3\nb=4", {"a": "1,2,3", "b": "4"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\\n# not a comment", {"a": "1# not a comment"}),
        ("a\\=b\\:c\\ d=1", {"a=b:c d": "1"}),
        ("a=\\u0041\\t\\n\\x", {"a": "A\t\nx"}),
        ("a=\\uD83D\\uDE00", {"a": "\N{GRINNING FACE}"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\na=2", {"a": "2"}),
        ("a\nb=\nc==1", {"a": "", "b": "", "c": "=1"}),
        ("a= x y  ", {"a": "x y  "}),
        ("a=1\\", {"a": "1"}),
        ("", {}),
    ],
)
def test_a_properties_file_reads_as_java_reads_it(text: str, settings: dict[str, str]) -> None:
    assert read_properties(text) == settings


def test_a_broken_escape_is_refused() -> None:
    with pytest.raises(MalformedProperties):
        read_properties("a=\\u00g0")


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
