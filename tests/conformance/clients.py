"""The clients: a name, and how to start the driver of each."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.client import Client
from tests.conformance.toolchain import Missing, Toolchain


@dataclass(frozen=True, slots=True)
class ClientKind:
    """`command` gives the driver's command line without the bootstrap address; it raises `Missing`."""

    name: str
    command: Callable[[Toolchain], list[str]]


def _python(module: str, library: str) -> Callable[[Toolchain], list[str]]:
    def command(toolchain: Toolchain) -> list[str]:
        if importlib.util.find_spec(library) is None:
            raise Missing(f"the package {library} is not installed: install the extra `clients`")
        return [sys.executable, "-m", f"tests.conformance.drivers.{module}"]

    return command


def _kcat(toolchain: Toolchain) -> list[str]:
    # kcat has no admin client: confluent-kafka's prepares its topics.
    _python("kcat", "confluent_kafka")(toolchain)
    return [sys.executable, "-m", "tests.conformance.drivers.kcat", toolchain.kcat()]


def _java(toolchain: Toolchain) -> list[str]:
    toolchain.compiled_java()
    return [*toolchain.java_command(), "Driver"]


def _kafkajs(toolchain: Toolchain) -> list[str]:
    return toolchain.node_command()


def _go(name: str) -> Callable[[Toolchain], list[str]]:
    return lambda toolchain: toolchain.go_command(name)


CLIENTS = (
    ClientKind("kcat", _kcat),
    ClientKind("confluent", _python("confluent", "confluent_kafka")),
    ClientKind("kafka-python", _python("kafka_python", "kafka")),
    ClientKind("aiokafka", _python("aiokafka_driver", "aiokafka")),
    ClientKind("kafkajs", _kafkajs),
    ClientKind("franz-go", _go("franz")),
    ClientKind("sarama", _go("sarama")),
    ClientKind("java", _java),
)


def driver_of(name: str, toolchain: Toolchain, bootstrap: str, log: Path) -> Client:
    """A driver process of the client of this name. Raises `Missing`."""
    kind = next(kind for kind in CLIENTS if kind.name == name)
    return Client(name, [*kind.command(toolchain), bootstrap], log)
