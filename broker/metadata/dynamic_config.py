"""The settings in force: those of the start, overlaid with dynamic settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from moldau.broker.config.altering import effective
from moldau.broker.config.config import Config
from moldau.broker.config.layers import BrokerLayers
from moldau.broker.config.topics import log_config
from moldau.kraft.image.configs import ResourceType
from moldau.kraft.image.metadata_image import MetadataImage
from moldau.storage.log_config import LogConfig

LOG_CONFIGS_MAX: Final = 1000
"""The most sets of overrides that are cached; past that number the cache is cleared."""


class DynamicConfig:
    """The dynamic settings of the metadata image. The logs of topics get their settings from here."""

    def __init__(self, config: Config) -> None:
        self.started_with = config
        self.config = config
        self.layers = BrokerLayers.of(config)
        self._listeners: list[Callable[[Config], None]] = []
        self._log_configs: dict[tuple[tuple[str, str], ...], LogConfig] = {}
        """One configuration for each set of topic overrides.

        Most topics share a configuration, and a log keeps only a reference.
        """

    def subscribe(self, listener: Callable[[Config], None]) -> None:
        """Call the listener with the settings in force, now and after each change."""
        self._listeners.append(listener)
        listener(self.config)

    def follow(self, image: MetadataImage) -> None:
        """Apply the dynamic settings of the cluster and of this broker."""
        default = image.configs.of(ResourceType.BROKER, "")
        own = image.configs.of(ResourceType.BROKER, str(self.started_with.node_id))
        if default == self.layers.dynamic_default and own == self.layers.dynamic_broker:
            return
        self.layers = BrokerLayers.of(self.started_with, default, own)
        self.config = effective(self.layers)
        self._log_configs.clear()
        for listener in self._listeners:
            listener(self.config)

    def log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        """The log settings of a topic with these overrides."""
        key = tuple(sorted(overrides.items()))
        known = self._log_configs.get(key)
        if known is None:
            if len(self._log_configs) >= LOG_CONFIGS_MAX:
                self._log_configs.clear()
            known = self._log_configs[key] = log_config(self.config, overrides)
        return known

    def topic_log_config(self, image: MetadataImage, topic: str) -> LogConfig:
        """The log settings of a topic, with its overrides in the image."""
        return self.log_config(image.configs.of(ResourceType.TOPIC, topic))
