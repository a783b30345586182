"""The committed metadata as the parts of a node ask about it: the image, and the brokers that clients can reach."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import NamedTuple, Protocol

from kraft.image.metadata_image import MetadataImage


class NodeAddress(NamedTuple):
    """A broker as the clients of one listener are told of it."""

    id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool


class PublishedMetadata(Protocol):
    """What publishes images: each is a value, and the next one takes its place."""

    @property
    def image(self) -> MetadataImage: ...


class ClusterView:
    """Reads the latest published image; an answer made of one image should take `image` once."""

    def __init__(self, published: PublishedMetadata, cluster_id: str, random: Random) -> None:
        """`random`: chooses among equal brokers."""
        self.id = cluster_id
        self._published = published
        self._random = random

    @property
    def image(self) -> MetadataImage:
        """The committed metadata."""
        return self._published.image

    def nodes(self, listener_name: str) -> Iterator[NodeAddress]:
        """The brokers that have an endpoint of this listener name, in the order of their ids."""
        for _, node in sorted(self.image.cluster.brokers.items()):
            endpoint = node.endpoints.get(listener_name)
            if endpoint is not None:
                yield NodeAddress(node.id, endpoint.host, endpoint.port, node.rack, node.fenced)

    def partitions_count(self, topic: str) -> int | None:
        """The number of partitions of a topic; None where the topic does not exist."""
        known = self.image.topics.by_name(topic)
        return None if known is None else len(known.partitions)

    def live_nodes(self, listener_name: str) -> Iterator[NodeAddress]:
        """The nodes of `nodes` that are not fenced."""
        return (node for node in self.nodes(listener_name) if not node.is_fenced)

    def is_alive(self, node_id: int) -> bool:
        """Whether a broker is registered, and not fenced."""
        node = self.image.cluster.brokers.get(node_id)
        return node is not None and not node.fenced

    def any_live_node_id(self) -> int:
        """A broker that clients take for the controller, -1 where all are fenced: every broker forwards to it."""
        brokers = self.image.cluster.brokers
        live = [node_id for node_id, node in brokers.items() if not node.fenced]
        return self._random.choice(live) if live else -1
