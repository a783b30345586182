"""Follows the committed metadata: makes, leads, reconfigures and deletes this broker's partitions as it says."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from broker.config.topics import topic_warnings
from broker.local_logs import Wanted
from kraft.image import topics
from kraft.image.configs import ResourceType
from kraft.image.metadata_image import MetadataDelta, MetadataImage
from replication.partition import Partition

if TYPE_CHECKING:
    from broker.node import Broker

log = logging.getLogger("moldau.logs")


class MetadataFollower:
    """`start` opens what the image gives to this broker; from then on each published change is applied at once."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._unmade: dict[tuple[bytes, int], None] = {}
        """Partitions that were given to this broker when no directory had room for them: topic id, index."""

    async def start(self) -> None:
        broker = self._broker
        image = broker.image
        broker.settings.follow(image)
        local = {
            (topic.name, index): (topic.id, partition)
            for topic, index, partition in image.topics.partitions()
            if broker.node_id in partition.replicas
        }
        logs = await broker.logs.open_all(
            {key: Wanted(topic_id, each.directory_of(broker.node_id)) for key, (topic_id, each) in local.items()},
            lambda topic: broker.settings.log_config(image.configs.of(ResourceType.TOPIC, topic)),
        )
        for key, (topic_id, assigned) in local.items():
            if key not in logs:
                broker.replicas.add_offline(key[0], topic_id, key[1])
                continue
            partition = Partition(key[0], topic_id, key[1], logs[key], broker.logs.high_watermark(logs[key]))
            self._add(partition, assigned)
        for topic in broker.replicas.by_name:
            self._warn(image, topic)
        broker.quorum.subscribe(self._changed)

    def _changed(self, image: MetadataImage, delta: MetadataDelta) -> None:
        deleted = [topic.name for topic in delta.topics.deleted.values()]
        for name in deleted:
            self._delete(name)
        if deleted:
            self._broker.groups.topics_deleted(deleted)
        for topic_id, touched in delta.topics.changed.items():
            name = image.topics.by_id[topic_id].name
            for index, assigned in touched.items():
                if self._broker.node_id in assigned.replicas:
                    self._take(image, name, topic_id, index, assigned)
            if topic_id in delta.topics.created:
                self._warn(image, name)
        if delta.configs.changed:
            self._reconfigure(image, delta)

    def _warn(self, image: MetadataImage, topic: str) -> None:
        """Say once which settings of a topic do nothing in this version."""
        for warning in topic_warnings(image.configs.of(ResourceType.TOPIC, topic)):
            log.warning("topic %s: %s", topic, warning)

    def _take(self, image: MetadataImage, topic: str, topic_id: bytes, index: int, assigned: topics.Partition) -> None:
        """Lead a partition, which is made where it is new."""
        broker = self._broker
        partition = broker.replicas.get(topic, index)
        if partition is None:
            if broker.replicas.is_offline(topic_id, index):
                return
            config = broker.settings.log_config(image.configs.of(ResourceType.TOPIC, topic))
            try:
                made = broker.logs.create(topic, index, topic_id, config)
            except OSError:
                broker.replicas.add_offline(topic, topic_id, index)
                self._unmade[topic_id, index] = None
                return
            partition = Partition(topic, topic_id, index, made, made.log_start_offset)
            self._add(partition, assigned)
        else:
            self._lead(partition, assigned)

    def _add(self, partition: Partition, assigned: topics.Partition) -> None:
        partition.is_internal = self._broker.is_internal(partition.topic)
        self._lead(partition, assigned)
        self._broker.replicas.add(partition)
        self._say_where(partition, assigned)
        self._broker.partition_gained(partition)

    def _say_where(self, partition: Partition, assigned: topics.Partition) -> None:
        """Let the controller know the log directory, where it does not."""
        logs = self._broker.logs
        directory_id = logs.directory_id(logs.directory_of(partition.log))
        if directory_id is not None and directory_id != assigned.directory_of(self._broker.node_id):
            self._broker.assignments.note(partition.topic_id, partition.index, directory_id)

    def make_missing(self) -> None:
        """Try again to make the partitions for which there was no room."""
        image = self._broker.image
        unmade, self._unmade = self._unmade, {}
        for topic_id, index in unmade:
            topic = image.topics.by_id.get(topic_id)
            if topic is not None:
                self._broker.replicas.forget_offline(topic_id, index)
                self._take(image, topic.name, topic_id, index, topic.partitions[index])

    def _lead(self, partition: Partition, assigned: topics.Partition) -> None:
        partition.min_insync_replicas = min(partition.log.config.min_insync_replicas, len(assigned.replicas))
        partition.become_leader(assigned.leader, assigned.leader_epoch, assigned.isr)
        if partition.awaits_flush:
            self._broker.flusher.flush(partition.log)  # what the process before this one left to the page cache

    def _delete(self, topic: str) -> None:
        for partition in self._broker.replicas.remove_topic(topic):
            self._broker.partition_lost(partition)
            self._broker.flusher.forget(partition.log)
            path = self._broker.logs.delete(partition.log)
            if path is not None:
                self._broker.log_jobs.remove_later([path], partition.log.config.file_delete_delay_ms)

    def _reconfigure(self, image: MetadataImage, delta: MetadataDelta) -> None:
        broker = self._broker
        changed_topics = {resource.name for resource in delta.configs.changed if resource.type == ResourceType.TOPIC}
        before = broker.settings.config
        broker.settings.follow(image)
        created = set(delta.topics.created.values())
        for topic in sorted((changed_topics & broker.replicas.by_name.keys()) - created):
            self._warn(image, topic)
        for partition in broker.replicas:
            if partition.topic in changed_topics or broker.settings.config is not before:
                overrides = image.configs.of(ResourceType.TOPIC, partition.topic)
                partition.log.config = broker.settings.log_config(overrides)
                assigned = image.topics.by_id[partition.topic_id].partitions[partition.index]
                partition.min_insync_replicas = min(partition.log.config.min_insync_replicas, len(assigned.replicas))
