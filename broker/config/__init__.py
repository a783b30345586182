"""Configuration: the settings of Apache Kafka, and what this broker does with each of them."""

from __future__ import annotations

from moldau.broker.config.config import Config, ConfigError, ConfigValues, ControllerVoter
from moldau.broker.config.listeners import ListenerAddress, with_bound_addresses

__all__ = ["Config", "ConfigError", "ConfigValues", "ControllerVoter", "ListenerAddress", "with_bound_addresses"]
