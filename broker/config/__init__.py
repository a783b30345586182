"""Configuration: Apache Kafka's own names, with a stance on each."""

from __future__ import annotations

from broker.config.config import Config, ConfigError, ConfigValues, ControllerVoter
from broker.config.listeners import ListenerAddress, resolved

__all__ = ["Config", "ConfigError", "ConfigValues", "ControllerVoter", "ListenerAddress", "resolved"]
