"""The broker's view of the cluster: the committed image, the addresses of brokers, and the dynamic settings in
force.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Final, Protocol

from moldau.broker.config.altering import effective_config
from moldau.broker.config.config import Config
from moldau.broker.config.describing import ConfigEntry, topic_entries
from moldau.broker.config.layers import BrokerLayers
from moldau.broker.config.topics import log_config
from moldau.kraft.image.configs import ResourceType
from moldau.kraft.image.metadata_image import MetadataImage
from moldau.protocol.late_tuple import NamedTuple
from moldau.storage.log_config import LogConfig

LOG_CONFIGS_MAX: Final = 1000
"""The largest number of cached log configurations, one for each set of topic overrides. When it is reached, the cache
is cleared.
"""


class NodeAddress(NamedTuple):
    """The address at which clients of one listener reach a broker."""

    id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool


class PublishedMetadata(Protocol):
    """The publisher of metadata images. Each image is immutable, and is replaced by the next one."""

    @property
    def image(self) -> MetadataImage: ...


class ClusterView:
    """Answers questions from the latest published image. A caller that needs several facts from the same image reads
    `image` once, and uses that.
    """

    def __init__(self, published: PublishedMetadata, cluster_id: str, random: Random) -> None:
        """`random`: chooses among live brokers."""
        self.id = cluster_id
        self._published = published
        self._random = random
        self._counted = published.image.topics
        self._counts: dict[str, int | None] = {}
        """The number of partitions by topic, for each topic in `_counted` that a caller of `partitions_count` has
        named. Only coordinators call it.
        """

    @property
    def image(self) -> MetadataImage:
        """The committed metadata."""
        return self._published.image

    def nodes(self, listener_name: str) -> Iterator[NodeAddress]:
        """The brokers with an endpoint of this listener name, in the order of their ids."""
        for _, node in sorted(self.image.cluster.brokers.items()):
            endpoint = node.endpoints.get(listener_name)
            if endpoint is not None:
                yield NodeAddress(node.id, endpoint.host, endpoint.port, node.rack, node.fenced)

    def partitions_count(self, topic: str) -> int | None:
        """The number of partitions of a topic; None if the topic does not exist."""
        topics = self.image.topics
        if topics is not self._counted:
            self._counted, self._counts = topics, {}
        if topic not in self._counts:
            known = topics.by_name(topic)
            self._counts[topic] = None if known is None else len(known.partitions)
        return self._counts[topic]

    def live_nodes(self, listener_name: str) -> Iterator[NodeAddress]:
        """The brokers of `nodes` that are not fenced."""
        return (node for node in self.nodes(listener_name) if not node.is_fenced)

    def is_alive(self, node_id: int) -> bool:
        """Whether a broker is registered, and not fenced."""
        node = self.image.cluster.brokers.get(node_id)
        return node is not None and not node.fenced

    def any_live_node_id(self) -> int:
        """The id of a random broker that is not fenced; -1 if all are fenced. A response names it as the controller,
        because every broker forwards requests to the controller.
        """
        brokers = self.image.cluster.brokers
        live = [node_id for node_id, node in brokers.items() if not node.fenced]
        return self._random.choice(live) if live else -1


class DynamicConfig:
    """The dynamic settings of the metadata image, and the settings in force: those of the configuration file with the
    dynamic ones applied. Logs get the settings of their topics from here.
    """

    def __init__(self, config: Config) -> None:
        self.started_with = config
        self.config = config
        self.layers = BrokerLayers.from_config(config)
        self._listeners: list[Callable[[Config], None]] = []
        self._log_configs: dict[tuple[tuple[str, str], ...], LogConfig] = {}
        """The log configuration for each set of topic overrides. Most topics have the same overrides, so their logs
        share one object.
        """
        self._topic_entries: tuple[ConfigEntry, ...] = ()

    def subscribe(self, listener: Callable[[Config], None]) -> None:
        """Call the listener with the settings in force, now and after each change."""
        self._listeners.append(listener)
        listener(self.config)

    def follow(self, image: MetadataImage) -> None:
        """Apply the dynamic settings that an image has for the cluster and for this broker. Listeners are called if the
        settings have changed.
        """
        default = image.configs.settings_of(ResourceType.BROKER, "")
        own = image.configs.settings_of(ResourceType.BROKER, str(self.started_with.node_id))
        if default == self.layers.dynamic_default and own == self.layers.dynamic_broker:
            return
        self.layers = BrokerLayers.from_config(self.started_with, default, own)
        self.config = effective_config(self.layers)
        self._log_configs.clear()
        self._topic_entries = ()
        for listener in self._listeners:
            listener(self.config)

    @property
    def topic_entries(self) -> tuple[ConfigEntry, ...]:
        """The value of every topic setting for a topic without overrides, from the settings in force."""
        if not self._topic_entries:
            self._topic_entries = topic_entries(self.config, self.layers)
        return self._topic_entries

    def log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        """The log settings of a topic that overrides some settings."""
        key = tuple(sorted(overrides.items()))
        known = self._log_configs.get(key)
        if known is None:
            if len(self._log_configs) >= LOG_CONFIGS_MAX:
                self._log_configs.clear()
            known = self._log_configs[key] = log_config(self.config, overrides)
        return known

    def topic_log_config(self, image: MetadataImage, topic: str) -> LogConfig:
        """The log settings of a topic with the overrides that the image has for it."""
        return self.log_config(image.configs.settings_of(ResourceType.TOPIC, topic))
