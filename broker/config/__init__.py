"""Configuration: Apache Kafka's own names, with a stance on each."""

from __future__ import annotations

from broker.config.config import Config, ConfigError, Settings, Voter
from broker.config.listeners import Listener, resolved

__all__ = ["Config", "ConfigError", "Listener", "Settings", "Voter", "resolved"]
