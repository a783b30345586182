"""The cluster's metadata as the group coordinator's machines read it: an immutable input of each step, like the
time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol


class CoordinatorTopic(Protocol):
    """A topic; its partitions are numbered from 0 without gaps."""

    @property
    def name(self) -> str: ...

    @property
    def id(self) -> bytes: ...

    @property
    def partitions_count(self) -> int: ...

    def racks_of(self, partition: int) -> Iterable[str]:
        """The rack of each replica of the partition; brokers without a rack are left out."""


class CoordinatorImage(Protocol):
    """The metadata of the cluster. An object never changes. Two objects may have equal metadata."""

    @property
    def version(self) -> int:
        """The offset of the last metadata record that this image contains; -1 if it contains none."""

    @property
    def topics_changed_at(self) -> int:
        """The version of the image in which topics were last created or deleted, as far as this broker has seen it."""

    def topic_of_name(self, name: str) -> CoordinatorTopic | None: ...

    def topic_of_id(self, topic_id: bytes) -> CoordinatorTopic | None: ...

    def topic_hash(self, topic: CoordinatorTopic) -> int:
        """The hash of a topic of this image (`metadata_hash.py`). The image computes it once and caches it."""

    def topic_names(self) -> Iterable[str]:
        """The names of all topics, in any order."""

    def group_settings(self, group_id: str) -> Mapping[str, str]:
        """The configuration of a group that overrides the broker's settings: values by Kafka's names."""

    def feature_level(self, name: str) -> int:
        """The finalized level of a feature; 0 if it is off."""


class NoMetadata:
    """A `CoordinatorImage` of a cluster without topics, settings and features."""

    version = topics_changed_at = -1

    def topic_of_name(self, name: str) -> None:
        return None

    def topic_of_id(self, topic_id: bytes) -> None:
        return None

    def topic_hash(self, topic: CoordinatorTopic) -> int:
        raise AssertionError("there is no topic")

    def topic_names(self) -> Iterable[str]:
        return ()

    def group_settings(self, group_id: str) -> Mapping[str, str]:
        return {}

    def feature_level(self, name: str) -> int:
        return 0


NO_METADATA: Final = NoMetadata()
