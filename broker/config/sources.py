"""Reads settings from environment variables, as Apache Kafka's image does, and from the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from moldau.broker.config.image_variables import PREFIX, without_services
from moldau.broker.config.loading import is_setting

# Variables of the image that are not settings, but for its scripts, the JVM or the logger.
_NOT_SETTINGS: Final = frozenset(
    {
        "KAFKA_VERSION",
        "KAFKA_HOME",
        "KAFKA_HEAP_OPTS",
        "KAFKA_OPTS",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_LOG4J_CMD_OPTS",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        "KAFKA_JMX_OPTS",
        "KAFKA_JMX_PORT",
        "KAFKA_JMX_HOSTNAME",
        "KAFKA_DEBUG",
        "KAFKA_DEBUG_FLAGS",
        "KAFKA_CLASSPATH",
        "KAFKA_CLUSTER_ID",
    }
)


class MalformedOverride(Exception):
    """Raised for an `--override` that is not of the form name=value."""


def from_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The settings in environment variables: KAFKA_LOG_DIRS is log.dirs. Variables that name no setting are left out;
    `unknown_variables` returns them.
    """
    own = without_services(variables)
    named = {setting_name(variable): value for variable, value in own.items() if _may_be_setting(variable)}
    return {name: value for name, value in named.items() if is_setting(name)}


def unknown_variables(variables: Mapping[str, str]) -> tuple[str, ...]:
    """The environment variables that have the prefix of settings but name no setting. They are a mistake, or belong to
    another program, such as KAFKA_LIB. Variables of a Kubernetes service are left out, because the user has not set
    them.
    """
    own = without_services(variables)
    return tuple(variable for variable in own if _may_be_setting(variable) and not is_setting(setting_name(variable)))


def _may_be_setting(variable: str) -> bool:
    return variable.startswith(PREFIX) and variable != PREFIX and variable not in _NOT_SETTINGS


def setting_name(variable: str) -> str:
    """The name of the setting for an environment variable.

    KAFKA_ is removed, ___ becomes a dash, __ an underscore and _ a dot, and letters become lower case.
    """
    name = variable.removeprefix(PREFIX).lower()
    return name.replace("___", "-").replace("__", "\0").replace("_", ".").replace("\0", "_")


def read_overrides(overrides: Iterable[str]) -> dict[str, str]:
    """Parse the values of `--override`, of the form name=value. Raises `MalformedOverride`."""
    settings: dict[str, str] = {}
    for override in overrides:
        name, equals, value = override.partition("=")
        if not equals or not name.strip():
            raise MalformedOverride(f"--override takes name=value, not {override!r}")
        settings[name.strip()] = value.strip()
    return settings


def single_node_defaults(data_directory: str) -> dict[str, str]:
    """The settings of a single node that needs no configuration file: those of Apache Kafka's sample file, on the
    loopback address.

    The advertised addresses are those of the listeners.
    """
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
        "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": data_directory,
        **internal_topic_settings(replicas=1),
    }


def internal_topic_settings(replicas: int) -> dict[str, str]:
    """The settings of the internal topics for a cluster with this number of brokers. With the default replication
    factor of 3, one or two brokers could not create the topics of transactions and share groups.
    """
    in_sync = str(max(1, replicas - 1))
    return {
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": str(replicas),
        "share.coordinator.state.topic.min.isr": in_sync,
    }
