"""The broker's view of the cluster: the committed image, the brokers that clients can reach, the settings in force."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Final, Protocol

from moldau.broker.config.altering import effective
from moldau.broker.config.config import Config
from moldau.broker.config.describing import ConfigEntry, topic_entries
from moldau.broker.config.layers import BrokerLayers
from moldau.broker.config.topics import log_config
from moldau.kraft.image.configs import ResourceType
from moldau.kraft.image.metadata_image import MetadataImage
from moldau.protocol.late_tuple import NamedTuple
from moldau.storage.log_config import LogConfig

LOG_CONFIGS_MAX: Final = 1000
"""The most sets of overrides that are cached; past that number the cache is cleared."""


class NodeAddress(NamedTuple):
    """The address of a broker for the clients of one listener."""

    id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool


class PublishedMetadata(Protocol):
    """The publisher of images. Each image is a value, which the next image replaces."""

    @property
    def image(self) -> MetadataImage: ...


class ClusterView:
    """Reads the latest published image. A caller whose answer must be of one image takes `image` once."""

    def __init__(self, published: PublishedMetadata, cluster_id: str, random: Random) -> None:
        """`random`: chooses among brokers that are equally good."""
        self.id = cluster_id
        self._published = published
        self._random = random
        self._counted = published.image.topics
        self._counts: dict[str, int | None] = {}
        """The number of partitions of each topic that was asked for, by its name in `_counted`. Only
        coordinators ask.
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
        self._topic_entries: tuple[ConfigEntry, ...] = ()

    def subscribe(self, listener: Callable[[Config], None]) -> None:
        """Call the listener with the settings in force, now and after each change."""
        self._listeners.append(listener)
        listener(self.config)

    def follow(self, image: MetadataImage) -> None:
        """Apply the dynamic settings of the cluster and of this broker in an image. Listeners are called if these have
        changed.
        """
        default = image.configs.of(ResourceType.BROKER, "")
        own = image.configs.of(ResourceType.BROKER, str(self.started_with.node_id))
        if default == self.layers.dynamic_default and own == self.layers.dynamic_broker:
            return
        self.layers = BrokerLayers.of(self.started_with, default, own)
        self.config = effective(self.layers)
        self._log_configs.clear()
        self._topic_entries = ()
        for listener in self._listeners:
            listener(self.config)

    @property
    def topic_entries(self) -> tuple[ConfigEntry, ...]:
        """Every setting of a topic without overrides, as the settings in force give it."""
        if not self._topic_entries:
            self._topic_entries = topic_entries(self.config, self.layers)
        return self._topic_entries

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
