"""Configuration: Apache Kafka's settings, each with what this broker does with it."""

from __future__ import annotations

from moldau.broker.config.config import Config, ConfigError, ConfigValues, ControllerVoter
from moldau.broker.config.listeners import ListenerAddress, resolved

__all__ = ["Config", "ConfigError", "ConfigValues", "ControllerVoter", "ListenerAddress", "resolved"]
