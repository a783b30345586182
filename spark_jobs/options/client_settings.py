"""The `kafka.` options of a client that reads from brokers or writes to them: its security and its timeouts."""

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
    """Whether the client has an option of this name, which is in lower case."""
    return name in SETTINGS


def client_settings(given: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The client's options that the user gives, as (name, value), with names in lower case."""
    return tuple((name, given[name]) for name in SETTINGS if name in given)
