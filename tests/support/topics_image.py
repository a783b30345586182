"""The cluster's metadata of a test: topics, and settings of groups; every feature is at level 1."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from moldau.coordinator.group.image import CoordinatorTopic
from moldau.coordinator.group.metadata_hash import topic_hash


@dataclass(frozen=True)
class TestTopic:
    """A `CoordinatorTopic`."""

    __test__ = False

    name: str
    id: bytes
    partitions_count: int
    racks: tuple[frozenset[str], ...] = ()

    def racks_of(self, partition: int) -> frozenset[str]:
        return self.racks[partition] if self.racks else frozenset()


@dataclass(frozen=True)
class TestImage:
    """A `CoordinatorImage`."""

    __test__ = False

    topics: tuple[TestTopic, ...] = ()
    version: int = 0
    topics_changed_at: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)
    """Those of every group, by Kafka's names."""

    def topic_of_name(self, name: str) -> TestTopic | None:
        return next((topic for topic in self.topics if topic.name == name), None)

    def topic_of_id(self, topic_id: bytes) -> TestTopic | None:
        return next((topic for topic in self.topics if topic.id == topic_id), None)

    def topic_hash(self, topic: CoordinatorTopic) -> int:
        return topic_hash(topic)

    def topic_names(self) -> Iterable[str]:
        return [topic.name for topic in self.topics]

    def group_settings(self, group_id: str) -> Mapping[str, str]:
        return self.settings

    def feature_level(self, name: str) -> int:
        return 1


def topic_id_of(name: str) -> bytes:
    """An id that follows from a name of at most 16 characters."""
    return name.encode().ljust(16, b"\x01")[:16]


def image_of_topics(topics: Mapping[str, int], settings: Mapping[str, str], version: int = 1) -> TestImage:
    """`topics`: their numbers of partitions by name."""
    made = (TestTopic(name, topic_id_of(name), count) for name, count in topics.items())
    return TestImage(tuple(made), version, version, settings)
