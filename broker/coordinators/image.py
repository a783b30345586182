"""The metadata image as the machines of groups read it: topics, racks, settings of groups, levels of features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from moldau.broker.metadata.cluster_view import PublishedMetadata
from moldau.kraft.image.configs import ResourceType
from moldau.kraft.image.metadata_image import MetadataImage
from moldau.kraft.image.topics import Topic


class ImageTopic(NamedTuple):
    """A `CoordinatorTopic` over a topic of a metadata image."""

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

    def racks_of(self, partition: int) -> frozenset[str]:
        brokers = self.image.cluster.brokers
        nodes = [brokers.get(replica) for replica in self.topic.partitions[partition].replicas]
        return frozenset(node.rack for node in nodes if node is not None and node.rack is not None)


class GroupsImage(NamedTuple):
    """A `CoordinatorImage` over a metadata image."""

    image: MetadataImage

    def topic_of_name(self, name: str) -> ImageTopic | None:
        topic = self.image.topics.by_name(name)
        return None if topic is None else ImageTopic(self.image, topic)

    def topic_of_id(self, topic_id: bytes) -> ImageTopic | None:
        topic = self.image.topics.by_id.get(topic_id)
        return None if topic is None else ImageTopic(self.image, topic)

    def topic_names(self) -> Iterable[str]:
        return self.image.topics.ids

    def group_settings(self, group_id: str) -> Mapping[str, str]:
        return self.image.configs.of(ResourceType.GROUP, group_id)

    def feature_level(self, name: str) -> int:
        return self.image.features.levels.get(name, 0)


class CurrentImage:
    """Gives the published image to the machines of groups. The result is the same object until something that they may
    read has changed; a change of leaders or in-sync replicas counts too.
    """

    def __init__(self, published: PublishedMetadata) -> None:
        self._published = published
        self._image = GroupsImage(published.image)

    def __call__(self) -> GroupsImage:
        known, image = self._image.image, self._published.image
        if (
            image.topics is not known.topics
            or image.cluster is not known.cluster
            or image.configs is not known.configs
            or image.features is not known.features
        ):
            self._image = GroupsImage(image)
        return self._image
