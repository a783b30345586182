"""The `kafka.` options of a client that reads from brokers or writes to them: its security and its times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SETTINGS: Final = (
    "kafka.security.protocol",
    "kafka.sasl.mechanism",
    "kafka.sasl.jaas.config",
    "kafka.ssl.ca.location",
    "kafka.ssl.truststore.location",
    "kafka.ssl.truststore.type",
    "kafka.ssl.endpoint.identification.algorithm",
    "kafka.client.id",
    "kafka.request.timeout.ms",
)


def is_client_setting(name: str) -> bool:
    """Whether an option, in lower case, is one that the client takes."""
    return name in SETTINGS


def client_settings(given: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """(name, value) of those that are given, with names in lower case."""
    return tuple((name, given[name]) for name in SETTINGS if name in given)
