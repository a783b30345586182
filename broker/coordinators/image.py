"""The metadata image as the group coordinator reads it: topics, racks, settings of groups, feature levels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from moldau.broker.metadata.cluster_view import PublishedMetadata
from moldau.coordinator.group.image import CoordinatorTopic
from moldau.coordinator.group.metadata_hash import topic_hash
from moldau.kraft.image.configs import ResourceType
from moldau.kraft.image.metadata_image import MetadataImage
from moldau.kraft.image.topics import Topic
from moldau.protocol.late_tuple import NamedTuple

HASHES_MAX: Final = 100_000
"""The most topic hashes that are kept. When they are reached, all are dropped."""


class ImageTopic(NamedTuple):
    """A topic of a metadata image, as the `CoordinatorTopic` that the group coordinator reads."""

    image: MetadataImage
    topic: Topic

    @property
    def name(self) -> str:
        return self.topic.name

    @property
    def id(self) -> bytes:
        return self.topic.id

    @property
    def partitions_count(self) -> int:
        return len(self.topic.partitions)

    def racks_of(self, partition: int) -> Sequence[str]:
        brokers = self.image.cluster.brokers
        nodes = [brokers.get(replica) for replica in self.topic.partitions[partition].replicas]
        return [node.rack for node in nodes if node is not None and node.rack is not None]


class HashedTopic(NamedTuple):
    """The hash of a topic, with the topic and the cluster objects from which it was computed. It is valid while the
    image still has these two objects.
    """

    topic: Topic
    cluster: object
    value: int


class GroupsImage(NamedTuple):
    """A metadata image, as the `CoordinatorImage` that the group coordinator reads."""

    image: MetadataImage
    topics_changed_at: int
    hashes: dict[bytes, HashedTopic]
    """The hashes computed so far, by topic id. The `GroupsImage` of a later metadata image continues to use this
    table.
    """

    @property
    def version(self) -> int:
        return self.image.provenance.end_offset - 1

    def topic_hash(self, topic: CoordinatorTopic) -> int:
        assert isinstance(topic, ImageTopic)
        known = self.hashes.get(topic.id)
        if known is None or known.topic is not topic.topic or known.cluster is not self.image.cluster:
            if len(self.hashes) >= HASHES_MAX:
                self.hashes.clear()
            known = self.hashes[topic.id] = HashedTopic(topic.topic, self.image.cluster, topic_hash(topic))
        return known.value

    def topic_of_name(self, name: str) -> ImageTopic | None:
        topic = self.image.topics.by_name(name)
        return None if topic is None else ImageTopic(self.image, topic)

    def topic_of_id(self, topic_id: bytes) -> ImageTopic | None:
        topic = self.image.topics.by_id.get(topic_id)
        return None if topic is None else ImageTopic(self.image, topic)

    def topic_names(self) -> Iterable[str]:
        return self.image.topics.ids

    def group_settings(self, group_id: str) -> Mapping[str, str]:
        return self.image.configs.settings_of(ResourceType.GROUP, group_id)

    def feature_level(self, name: str) -> int:
        return self.image.features.levels.get(name, 0)


class CurrentImage:
    """Gives the group coordinator the published metadata image. The same `GroupsImage` is returned until the topics,
    the cluster, the settings or the feature levels change. A change of a leader or of in-sync replicas changes the
    topics.
    """

    def __init__(self, published: PublishedMetadata) -> None:
        self._published = published
        self._image = GroupsImage(published.image, published.image.provenance.end_offset - 1, {})

    def __call__(self) -> GroupsImage:
        known, image = self._image.image, self._published.image
        if (
            image.topics is not known.topics
            or image.cluster is not known.cluster
            or image.configs is not known.configs
            or image.features is not known.features
        ):
            is_same = image.topics.ids is known.topics.ids
            changed_at = self._image.topics_changed_at if is_same else image.provenance.end_offset - 1
            self._image = GroupsImage(image, changed_at, self._image.hashes)
        return self._image
