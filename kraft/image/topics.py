"""The topics of the cluster: their names, ids and partitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from moldau.kraft.image.cluster import MIGRATING_DIRECTORY, ClusterImage
from moldau.kraft.image.persistent_map import PersistentMap, hash_of_text, hash_of_uuid
from moldau.kraft.topic_names import may_collide, metric_name
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.records.metadata import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

NO_LEADER: Final = -1
LEADER_UNCHANGED: Final = -2
"""The leader in a PartitionChangeRecord that changes neither the leader nor the leader epoch."""
RECOVERY_STATE_UNCHANGED: Final = -1


class SharedTuples:
    """A pool that keeps one object for all equal tuples of the partitions' replicas and directories: a million
    partitions take 0.3 GB of memory instead of 1.2."""

    __slots__ = ("brokers", "directories")

    def __init__(self) -> None:
        self.brokers: dict[tuple[int, ...], tuple[int, ...]] = {}
        self.directories: dict[tuple[bytes, ...], tuple[bytes, ...]] = {}


class PartitionRegistration(NamedTuple):
    """The metadata of one partition: its replicas, leader, in-sync replicas and epochs.

    `directories` has the id of the log directory of each replica, in the order of `replicas`.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    directories: tuple[bytes, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    leader_recovery_state: int = 0
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()

    @classmethod
    def from_record(cls, record: PartitionRecord, shared: SharedTuples) -> PartitionRegistration:
        replicas, isr = tuple(record.replicas), tuple(record.isr)
        directories = tuple(record.directories)
        return cls(
            replicas=shared.brokers.setdefault(replicas, replicas),
            isr=shared.brokers.setdefault(isr, isr),
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            directories=shared.directories.setdefault(directories, directories),
            removing_replicas=tuple(record.removing_replicas),
            adding_replicas=tuple(record.adding_replicas),
            leader_recovery_state=record.leader_recovery_state,
            eligible_leader_replicas=tuple(record.eligible_leader_replicas or ()),
            last_known_elr=tuple(record.last_known_elr or ()),
        )

    def directory_of(self, broker_id: int) -> bytes:
        """The log directory of the replica on a broker; MIGRATING_DIRECTORY if the metadata names none."""
        if broker_id not in self.replicas:
            return MIGRATING_DIRECTORY
        place = self.replicas.index(broker_id)
        return self.directories[place] if place < len(self.directories) else MIGRATING_DIRECTORY

    def offline_replicas(self, cluster: ClusterImage) -> list[int]:
        """The replicas that cannot serve: their broker is fenced or not registered, or their log directory has
        failed."""
        brokers, directories = cluster.brokers, self.directories
        offline = []
        for place, replica in enumerate(self.replicas):
            broker = brokers.get(replica)
            directory = directories[place] if place < len(directories) else MIGRATING_DIRECTORY
            if broker is None or broker.fenced or not broker.has_online_directory(directory):
                offline.append(replica)
        return offline

    def with_change(self, record: PartitionChangeRecord) -> PartitionRegistration:
        """The registration after a change record is applied.

        A field that the record does not set keeps its value. A record that names a leader, even the current one, begins
        a new leader epoch.
        """
        names_leader = record.leader != LEADER_UNCHANGED
        keeps_state = record.leader_recovery_state == RECOVERY_STATE_UNCHANGED
        return PartitionRegistration(
            replicas=_or(record.replicas, self.replicas),
            isr=_or(record.isr, self.isr),
            leader=record.leader if names_leader else self.leader,
            leader_epoch=self.leader_epoch + names_leader,
            partition_epoch=self.partition_epoch + 1,
            directories=self.directories if record.directories is None else tuple(record.directories),
            removing_replicas=_or(record.removing_replicas, self.removing_replicas),
            adding_replicas=_or(record.adding_replicas, self.adding_replicas),
            leader_recovery_state=self.leader_recovery_state if keeps_state else record.leader_recovery_state,
            eligible_leader_replicas=_or(record.eligible_leader_replicas, self.eligible_leader_replicas),
            last_known_elr=_or(record.last_known_elr, self.last_known_elr),
        )

    def to_record(self, topic_id: bytes, partition_id: int) -> PartitionRecord:
        return PartitionRecord(
            partition_id=partition_id,
            topic_id=topic_id,
            replicas=list(self.replicas),
            isr=list(self.isr),
            removing_replicas=list(self.removing_replicas),
            adding_replicas=list(self.adding_replicas),
            leader=self.leader,
            leader_recovery_state=self.leader_recovery_state,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            directories=list(self.directories),
            eligible_leader_replicas=list(self.eligible_leader_replicas) or None,
            last_known_elr=list(self.last_known_elr) or None,
        )


def _or(changed: list[int] | None, unchanged: tuple[int, ...]) -> tuple[int, ...]:
    return unchanged if changed is None else tuple(changed)


class Topic(NamedTuple):
    """A topic; its partitions are numbered from 0 without gaps."""

    name: str
    id: bytes
    partitions: Mapping[int, PartitionRegistration]


class TopicsImage(NamedTuple):
    """All topics by id, and the topic ids by name."""

    by_id: PersistentMap[bytes, Topic] = PersistentMap(hash_of_uuid)
    ids: PersistentMap[str, bytes] = PersistentMap(hash_of_text)
    metric_names: PersistentMap[str, str] = PersistentMap(hash_of_text)
    """Topic names by metric name (`metric_name`). It has only topics with a dot or an underscore in their name, because
    the metric name of another topic could be the same."""

    @classmethod
    def from_topics(cls, topics: Iterable[Topic]) -> TopicsImage:
        """Make the image of the given topics."""
        by_id = {topic.id: topic for topic in topics}
        names = [topic.name for topic in by_id.values()]
        empty = cls()
        return cls(
            empty.by_id.with_changes(by_id),
            empty.ids.with_changes({topic.name: topic.id for topic in by_id.values()}),
            empty.metric_names.with_changes({metric_name(name): name for name in names if may_collide(name)}),
        )

    def by_name(self, name: str) -> Topic | None:
        topic_id = self.ids.get(name)
        return None if topic_id is None else self.by_id[topic_id]

    def partition(self, name: str, partition_id: int) -> PartitionRegistration | None:
        topic = self.by_name(name)
        return None if topic is None else topic.partitions.get(partition_id)

    def partitions(self) -> Iterator[tuple[Topic, int, PartitionRegistration]]:
        for topic in self.by_id.values():
            for partition_id, partition in topic.partitions.items():
                yield topic, partition_id, partition

    def has_more_partitions_than(self, count: int) -> bool:
        """Whether there are more than `count` partitions. Counting stops as soon as the answer is known."""
        for topic in self.by_id.values():
            count -= len(topic.partitions)
            if count < 0:
                return True
        return False

    def snapshot_records(self) -> Iterator[object]:
        for topic in self.by_id.values():
            yield TopicRecord(name=topic.name, topic_id=topic.id)
            for partition_id, partition in sorted(topic.partitions.items()):
                yield partition.to_record(topic.id, partition_id)


class TopicsDelta:
    """The changes that records make to topics. `changed` has the changed partitions by topic id, including those of new
    topics.
    """

    __slots__ = ("_created_ids", "_shared", "changed", "created", "deleted", "image")

    def __init__(self, image: TopicsImage) -> None:
        self.image = image
        self._shared = SharedTuples()
        self.changed: dict[bytes, dict[int, PartitionRegistration]] = {}
        self.created: dict[bytes, str] = {}
        """The names of the topics that these records created, by topic id."""
        self._created_ids: dict[str, bytes] = {}
        """The ids of the created topics by name, so that later records of this delta find them."""
        self.deleted: dict[bytes, Topic] = {}
        """The topics of the base image that these records deleted, by id."""

    def replay_topic(self, record: TopicRecord) -> None:
        self.created[record.topic_id] = record.name
        self._created_ids[record.name] = record.topic_id
        self.changed[record.topic_id] = {}

    def replay_partition(self, record: PartitionRecord) -> None:
        self._touched(record.topic_id)[record.partition_id] = PartitionRegistration.from_record(record, self._shared)

    def replay_change(self, record: PartitionChangeRecord) -> None:
        touched = self._touched(record.topic_id)
        before = touched.get(record.partition_id)
        if before is None:
            before = self.image.by_id[record.topic_id].partitions[record.partition_id]
        touched[record.partition_id] = before.with_change(record)

    def replay_remove(self, record: RemoveTopicRecord) -> str:
        """Remove a topic. Returns its name, so that the caller can remove its settings."""
        self.changed.pop(record.topic_id, None)
        name = self.created.pop(record.topic_id, None)
        if name is None:
            topic = self.deleted[record.topic_id] = self.image.by_id[record.topic_id]
            return topic.name
        del self._created_ids[name]
        return name

    def replay_clear_elr(self, record: ClearElrRecord) -> None:
        """Clear the eligible leader replicas of a topic; an empty name means every topic.

        At a start the whole log is replayed as one delta. The record therefore also applies to topics that earlier
        records of the same delta created, changed or deleted. Otherwise a restarted node would have other epochs and
        eligible leader replicas than the other nodes.
        """
        if record.topic_name:
            topic_id = self._created_ids.get(record.topic_name) or self.image.ids.get(record.topic_name)
            topic_ids = [] if topic_id is None else [topic_id]
        else:
            topic_ids = [*self.image.by_id, *self.created]
        for topic_id in topic_ids:
            if topic_id not in self.deleted:
                self._clear_elr(topic_id)

    def _clear_elr(self, topic_id: bytes) -> None:
        unchanged = {} if topic_id in self.created else self.image.by_id[topic_id].partitions
        for partition_id, partition in {**unchanged, **self.changed.get(topic_id, {})}.items():
            if partition.eligible_leader_replicas or partition.last_known_elr:
                self._touched(topic_id)[partition_id] = partition._replace(
                    eligible_leader_replicas=(), last_known_elr=(), partition_epoch=partition.partition_epoch + 1
                )

    def apply(self) -> TopicsImage:
        if not (self.changed or self.deleted):
            return self.image
        topics: dict[bytes, Topic | None] = dict.fromkeys(self.deleted)
        ids: dict[str, bytes | None] = {topic.name: None for topic in self.deleted.values()}
        metric_names: dict[str, str | None] = {metric_name(name): None for name in ids if may_collide(name)}
        for topic_id, touched in self.changed.items():
            if topic_id not in self.created:
                topic = self.image.by_id[topic_id]
                name, partitions = topic.name, {**topic.partitions, **touched}
            else:
                name, partitions = self.created[topic_id], touched
                ids[name] = topic_id
                if may_collide(name):
                    metric_names[metric_name(name)] = name
            topics[topic_id] = Topic(name, topic_id, partitions)
        return TopicsImage(
            self.image.by_id.with_changes(topics),
            self.image.ids.with_changes(ids),
            self.image.metric_names.with_changes(metric_names),
        )

    def _touched(self, topic_id: bytes) -> dict[int, PartitionRegistration]:
        touched = self.changed.get(topic_id)
        if touched is None:
            assert topic_id in self.image.by_id, f"a partition of a topic that does not exist: {topic_id.hex()}"
            touched = self.changed[topic_id] = {}
        return touched
