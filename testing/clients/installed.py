"""Chooses the Kafka client library: the first of confluent-kafka, kafka-python and aiokafka that is installed."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Final, NamedTuple

from moldau.testing.clients.port import Client, NoClient


class Library(NamedTuple):
    """A client library that the conveniences of a cluster can use."""

    name: str
    """The name of the library for pip."""
    package: str
    module: str
    of_class: str


LIBRARIES: Final = (
    Library("confluent-kafka", "confluent_kafka", "confluent", "ConfluentClient"),
    Library("kafka-python", "kafka", "kafka_python", "KafkaPythonClient"),
    Library("aiokafka", "aiokafka", "aiokafka_thread", "AiokafkaClient"),
)


def library(name: str | None = None) -> Library:
    """The client library with this name; without a name the first library that is installed. Raises `NoClient`."""
    for each in LIBRARIES:
        if name in (None, each.name) and find_spec(each.package) is not None:
            return each
    known = ", ".join(each.name for each in LIBRARIES)
    if name is not None and name not in known.split(", "):
        raise NoClient(f"{name} is not a client that is supported: {known}")
    raise NoClient(
        f"topics, records and offsets of a cluster need a Kafka client: pip install {name or LIBRARIES[0].name}"
        f" (supported: {known}). The cluster itself needs none"
    )


def client(chosen: Library, settings: Mapping[str, object]) -> Client:
    """Make a client of a library. `settings` have the library's own names."""
    of_class = getattr(import_module(f"moldau.testing.clients.{chosen.module}"), chosen.of_class)
    made: Client = of_class(settings)
    return made
