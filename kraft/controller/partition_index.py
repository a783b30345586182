"""An index of partitions by broker. With it the work of the controller after the failure of a broker is proportional to
the number of that broker's partitions.

A controller builds the index from an image when its term begins, and updates it with each delta. Keys keep the order in
which they were added, so that no result depends on Python's hashes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from moldau.kraft.image.difference import compare_topics
from moldau.kraft.image.topics import NO_LEADER, PartitionRegistration, TopicsDelta, TopicsImage
from moldau.protocol.late_tuple import NamedTuple

Key = tuple[bytes, int]
"""A partition: the id of its topic and its index."""
Keys = dict[Key, None]
"""An ordered set of partitions."""
NO_PARTITIONS: Mapping[Key, None] = {}


class PartitionIndex:
    """For each broker, the partitions that it leads, for which it is in sync, and of which it is an eligible leader
    replica."""

    __slots__ = ("_eligible", "_in_sync", "_led", "imbalanced", "reassigned")

    def __init__(self, topics: TopicsImage) -> None:
        self._in_sync: dict[int, Keys] = {}
        self._eligible: dict[int, Keys] = {}
        self._led: dict[int, Keys] = {}
        self.imbalanced: Keys = {}
        """Partitions that are not led by their preferred leader."""
        self.reassigned: Keys = {}
        """Partitions that are being reassigned."""
        for topic, partition_id, partition in topics.partitions():
            self._add((topic.id, partition_id), partition)

    def partitions_in_sync(self, broker_id: int) -> Collection[Key]:
        """Partitions with the broker in their in-sync set."""
        return self._in_sync.get(broker_id, NO_PARTITIONS)

    def partitions_eligible(self, broker_id: int) -> Collection[Key]:
        """Partitions with the broker among their eligible leader replicas."""
        return self._eligible.get(broker_id, NO_PARTITIONS)

    def partitions_led(self, broker_id: int) -> Collection[Key]:
        """Partitions that name the broker as leader."""
        return self._led.get(broker_id, NO_PARTITIONS)

    @property
    def leaderless(self) -> Collection[Key]:
        return self.partitions_led(NO_LEADER)

    def partitions_led_or_in_sync(self, broker_id: int) -> Iterator[Key]:
        """Yield the partitions that the broker leads or for which it is in sync, each once."""
        in_sync = self.partitions_in_sync(broker_id)
        yield from in_sync
        yield from (key for key in self.partitions_led(broker_id) if key not in in_sync)

    def update(self, delta: TopicsDelta) -> None:
        """Update the index with the changes that records made to topics."""
        for topic in delta.deleted.values():
            for partition_id, partition in topic.partitions.items():
                self._remove((topic.id, partition_id), partition)
        for topic_id, touched in delta.changed.items():
            known: Mapping[int, PartitionRegistration] = (
                {} if topic_id in delta.created else delta.image.by_id[topic_id].partitions
            )
            for partition_id, partition in touched.items():
                before = known.get(partition_id)
                if before is not None:
                    self._remove((topic_id, partition_id), before)
                self._add((topic_id, partition_id), partition)

    def _add(self, key: Key, partition: PartitionRegistration) -> None:
        add_key(self._in_sync, partition.isr, key)
        add_key(self._led, (partition.leader,), key)
        if partition.eligible_leader_replicas:
            add_key(self._eligible, partition.eligible_leader_replicas, key)
        if partition.leader != partition.replicas[0]:
            self.imbalanced[key] = None
        if partition.adding_replicas or partition.removing_replicas:
            self.reassigned[key] = None

    def _remove(self, key: Key, partition: PartitionRegistration) -> None:
        remove_key(self._in_sync, partition.isr, key)
        remove_key(self._led, (partition.leader,), key)
        remove_key(self._eligible, partition.eligible_leader_replicas, key)
        self.imbalanced.pop(key, None)
        self.reassigned.pop(key, None)


class IndexedTopics(NamedTuple):
    """The topics of an image, and the partition index of these topics."""

    topics: TopicsImage
    by_broker: PartitionIndex

    def update_to(self, topics: TopicsImage) -> PartitionIndex:
        """Update the index to other topics, and return it. This object must not be used any more afterwards."""
        delta = TopicsDelta(self.topics)
        compare_topics(delta, self.topics, topics)
        self.by_broker.update(delta)
        return self.by_broker


def add_key(index: dict[int, Keys], broker_ids: Iterable[int], key: Key) -> None:
    for broker_id in broker_ids:
        keys = index.get(broker_id)
        if keys is None:
            keys = index[broker_id] = {}
        keys[key] = None


def remove_key(index: dict[int, Keys], broker_ids: Iterable[int], key: Key) -> None:
    for broker_id in broker_ids:
        keys = index[broker_id]
        del keys[key]
        if not keys:
            del index[broker_id]
