"""Configuration: Apache Kafka's settings, each with what this broker does with it."""

from __future__ import annotations

from broker.config.config import Config, ConfigError, ConfigValues, ControllerVoter
from broker.config.listeners import ListenerAddress, resolved

__all__ = ["Config", "ConfigError", "ConfigValues", "ControllerVoter", "ListenerAddress", "resolved"]
