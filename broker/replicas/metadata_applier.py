"""Follows the committed metadata: makes, leads, reconfigures and deletes this broker's partitions as it says."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker.config.topics import topic_warnings
from broker.replicas.local_logs import Wanted
from broker.replicas.partition_work import Delete, Make
from kraft.image import topics
from kraft.image.configs import ResourceType
from kraft.image.difference import difference
from kraft.image.metadata_image import MetadataDelta, MetadataImage
from replication.partition import Partition
from storage.log.log import Log
from storage.log.log_config import LogConfig

if TYPE_CHECKING:
    from broker.node.node import Broker

log = logging.getLogger("moldau.logs")


class MetadataFollower:
    """`start` opens what the image gives to this broker; from then on each published change is applied at once."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._unmade: dict[tuple[bytes, int], None] = {}
        """Partitions that were given to this broker when no directory had room for them: topic id, index."""
        self._is_trying_again = False
        self._takes_roles = False

    async def start(self) -> None:
        broker = self._broker
        image = broker.image
        broker.settings.follow(image)
        broker.throttles.follow(image.configs, [resource for resource, _ in image.configs.by_resource.items()])
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
                if key in broker.logs.damaged:
                    broker.damaged.note(key[0], topic_id, key[1], broker.logs.damaged[key])
                continue
            partition = Partition(key[0], topic_id, key[1], logs[key], broker.logs.high_watermark(logs[key]))
            self._add(partition, assigned)
        for topic in broker.replicas.by_name:
            self._warn(image, topic)
        if broker.image is not image:
            self._changed(broker.image, difference(image, broker.image))  # published while the logs were opened
        broker.quorum.subscribe(self._changed)

    def begin(self) -> None:
        """This broker is registered, and has read the metadata up to there: lead and follow from now on.

        Not before: earlier metadata may name it as the leader of an epoch in which the process before this one led.
        That one may have given to its followers what a loss of power took away here, and an epoch has one history.
        """
        self._takes_roles = True
        for partition in tuple(self._broker.replicas):
            topic = self._broker.image.topics.by_id.get(partition.topic_id)
            if topic is not None:
                self._assume(partition, topic.partitions[partition.index])
        self._broker.damaged.look()

    def _changed(self, image: MetadataImage, delta: MetadataDelta) -> None:
        deleted = [topic.name for topic in delta.topics.deleted.values()]
        for topic in delta.topics.deleted.values():
            self._broker.damaged.topic_deleted(topic.id)
            self._delete(topic.name)
        if deleted:
            self._broker.groups.topics_deleted(deleted)
        new: list[Make] = []
        for topic_id, touched in delta.topics.changed.items():
            name = image.topics.by_id[topic_id].name
            for index, assigned in touched.items():
                if self._broker.node_id in assigned.replicas:
                    partition = self._broker.replicas.get(name, index)
                    if partition is not None:
                        self._assume(partition, assigned)
                    elif self._broker.replicas.is_offline(topic_id, index):
                        if self._takes_roles:
                            self._broker.damaged.changed(topic_id, index, assigned)
                    elif not self._broker.replicas.is_expected(topic_id, index):
                        new.append(Make(name, topic_id, index))
                else:
                    self._broker.damaged.left(topic_id, index)
                    self._leave(name, index)
            if topic_id in delta.topics.created:
                self._warn(image, name)
        self._make(new)
        if delta.configs.changed:
            self._reconfigure(image, delta)
        if delta.cluster.brokers:
            self._broker.fetchers.brokers_changed()
            self._broker.in_sync_changes.brokers_changed()

    def _warn(self, image: MetadataImage, topic: str) -> None:
        """Say once which settings of a topic do nothing in this version."""
        for warning in topic_warnings(image.configs.of(ResourceType.TOPIC, topic)):
            log.warning("topic %s: %s", topic, warning)

    def _make(self, new: Sequence[Make]) -> None:
        """At once where these are few, else soon."""
        if self._broker.partition_work.takes(new):
            for each in new:
                self._broker.replicas.expect(*each)
        else:
            for each in new:
                self.take(each, None)

    def is_wanted(self, new: Make) -> bool:
        """Whether a partition that was to be made still is this broker's, and not there."""
        topic = self._broker.image.topics.by_id.get(new.topic_id)
        if topic is None or self._broker.node_id not in topic.partitions[new.partition].replicas:
            return False
        return self._broker.replicas.get(new.topic, new.partition) is None

    def log_config(self, topic: str) -> LogConfig:
        return self._broker.settings.log_config(self._broker.image.configs.of(ResourceType.TOPIC, topic))

    def take(self, new: Make, made: Log | None) -> None:
        """Lead or follow a new partition as the metadata is now, on the log that was made for it or one made here."""
        broker = self._broker
        broker.replicas.forget_expected(new.topic_id, new.partition)
        if broker.replicas.is_offline(new.topic_id, new.partition):
            return
        config = self.log_config(new.topic)
        if made is None:
            try:
                made = broker.logs.create(new.topic, new.partition, new.topic_id, config)
            except OSError as error:
                if not self._is_trying_again:
                    log.error("%s-%d cannot be made, and is offline until it can: %s", new.topic, new.partition, error)
                broker.replicas.add_offline(new.topic, new.topic_id, new.partition)
                self._unmade[new.topic_id, new.partition] = None
                return
        if made.failure is not None:
            broker.replicas.add_offline(new.topic, new.topic_id, new.partition)
            return
        made.config = config
        partition = Partition(new.topic, new.topic_id, new.partition, made, made.log_start_offset)
        self._add(partition, broker.image.topics.by_id[new.topic_id].partitions[new.partition])

    def take_repaired(self, topic: str, topic_id: bytes, index: int, repaired: Log) -> None:
        """Serve a partition again whose log was damaged, as far as it goes. The controller hears of it later: see
        `DamagedReplicas`."""
        broker = self._broker
        try:
            repaired.assign_topic_id(topic_id)
        except OSError as error:
            repaired.fail(error)
        broker.replicas.forget_offline(topic_id, index)
        if repaired.failure is not None:
            broker.replicas.add_offline(topic, topic_id, index)
            return
        partition = Partition(topic, topic_id, index, repaired, broker.logs.high_watermark(repaired))
        self._serve(partition, broker.image.topics.by_id[topic_id].partitions[index])

    def _add(self, partition: Partition, assigned: topics.Partition) -> None:
        self.say_where(partition, assigned)
        self._serve(partition, assigned)

    def _serve(self, partition: Partition, assigned: topics.Partition) -> None:
        partition.is_internal = self._broker.is_internal(partition.topic)
        self._broker.replicas.add(partition)
        self._assume(partition, assigned)

    def say_where(self, partition: Partition, assigned: topics.Partition) -> None:
        """Let the controller know the log directory, where it does not."""
        logs = self._broker.logs
        directory_id = logs.directory_id(logs.directory_of(partition.log))
        if directory_id is not None and directory_id != assigned.directory_of(self._broker.node_id):
            self._broker.assignments.note(partition.topic_id, partition.index, directory_id)

    def make_missing(self) -> None:
        """Try again to make the partitions for which there was no room."""
        image = self._broker.image
        unmade, self._unmade = self._unmade, {}
        self._is_trying_again = True
        for topic_id, index in unmade:
            topic = image.topics.by_id.get(topic_id)
            if topic is not None:
                self._broker.replicas.forget_offline(topic_id, index)
                self.take(Make(topic.name, topic_id, index), None)
        self._is_trying_again = False

    def _assume(self, partition: Partition, assigned: topics.Partition) -> None:
        """Take the role that the controller gives to this replica."""
        broker = self._broker
        partition.min_insync_replicas = min(partition.log.config.min_insync_replicas, len(assigned.replicas))
        if not self._takes_roles:
            return
        was_leader, epoch_before = partition.is_leader, partition.leader_epoch
        if assigned.leader == broker.node_id:
            broker.fetchers.unfollow(partition)
            replicas_before = partition.leadership.replicas if partition.leadership is not None else ()
            partition.become_leader(
                assigned.leader,
                assigned.leader_epoch,
                assigned.isr,
                replicas=assigned.replicas,
                partition_epoch=assigned.partition_epoch,
                now_ms=broker.environment.monotonic_ms(),
            )
            is_new = assigned.leader_epoch > epoch_before or assigned.replicas != replicas_before
            if is_new and len(assigned.replicas) > 1:
                broker.parked_fetches.leads_anew()
            if partition.awaits_flush:
                broker.flusher.flush(partition.log)  # what the process before this one left to the page cache
        else:
            partition.become_follower(assigned.leader, assigned.leader_epoch, assigned.partition_epoch)
            if was_leader or assigned.leader_epoch != epoch_before:
                broker.fetchers.follow(partition)
        if partition.is_leader and not was_leader:
            broker.partition_gained(partition)
        elif was_leader and not partition.is_leader:
            broker.partition_lost(partition)

    def _delete(self, topic: str) -> None:
        partitions = self._broker.replicas.remove_topic(topic)
        for partition in partitions:
            self._forget(partition)
        self._delete_logs([partition.log for partition in partitions])

    def _leave(self, topic: str, index: int) -> None:
        """The replica was moved to another broker."""
        partition = self._broker.replicas.remove(topic, index)
        if partition is not None:
            self._forget(partition)
            self._delete_logs([partition.log])

    def _forget(self, partition: Partition) -> None:
        if partition.is_leader:
            self._broker.partition_lost(partition)
        self._broker.fetchers.unfollow(partition)
        partition.gone()
        self._broker.flusher.forget(partition.log)

    def _delete_logs(self, logs: Sequence[Log]) -> None:
        """Beside the loop where these are many."""
        if self._broker.partition_work.takes([Delete(each) for each in logs]):
            return
        for each in logs:
            path = self._broker.logs.delete(each)
            if path is not None:
                self._broker.log_jobs.remove_later([path], each.config.file_delete_delay_ms)

    def _reconfigure(self, image: MetadataImage, delta: MetadataDelta) -> None:
        broker = self._broker
        changed_topics = {resource.name for resource in delta.configs.changed if resource.type == ResourceType.TOPIC}
        before = broker.settings.config
        broker.settings.follow(image)
        broker.throttles.follow(image.configs, delta.configs.changed)
        created = set(delta.topics.created.values())
        for topic in sorted((changed_topics & broker.replicas.by_name.keys()) - created):
            self._warn(image, topic)
        for partition in broker.replicas:
            if partition.topic in changed_topics or broker.settings.config is not before:
                overrides = image.configs.of(ResourceType.TOPIC, partition.topic)
                partition.log.config = broker.settings.log_config(overrides)
                assigned = image.topics.by_id[partition.topic_id].partitions[partition.index]
                partition.min_insync_replicas = min(partition.log.config.min_insync_replicas, len(assigned.replicas))
                partition.advance()
