"""Applies the committed metadata to this broker: makes, reconfigures and deletes its replicas, assigns their roles."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, Protocol

from moldau.broker.config.config import Config
from moldau.broker.config.topics import topic_warnings
from moldau.broker.metadata.cluster_view import ClusterView, DynamicConfig
from moldau.broker.replicas.damaged_replicas import DamagedReplicas
from moldau.broker.replicas.directory_assignments import DirectoryAssignments
from moldau.broker.replicas.file_removal import FileRemoval
from moldau.broker.replicas.in_sync_changes import InSyncChanges
from moldau.broker.replicas.local_logs import AssignedReplica, LocalLogs
from moldau.broker.replicas.partition_work import CreateLog, DeleteLog, PartitionWork
from moldau.broker.replicas.replica_fetchers import ReplicaFetchers
from moldau.broker.replicas.replicas import Replicas
from moldau.broker.replicas.roles import ReplicaRoles
from moldau.broker.runtime.tasks import InSlices
from moldau.kraft.image.configs import ConfigResource, ConfigsImage, ResourceType
from moldau.kraft.image.difference import difference_between
from moldau.kraft.image.metadata_image import MetadataDelta, MetadataImage
from moldau.kraft.image.topics import PartitionRegistration as Assigned
from moldau.kraft.image.topics import Topic
from moldau.protocol.late_dataclass import dataclass
from moldau.replication.partition import Partition
from moldau.replication.replication_quota import ReplicationQuota, parse_throttled_partitions, throttle_rate_setting
from moldau.storage.log.log import Log
from moldau.storage.log_config import LogConfig

log = logging.getLogger("moldau.logs")
LEADER: Final = "leader.replication.throttled."
FOLLOWER: Final = "follower.replication.throttled."


class MetadataFeed(Protocol):
    """The publisher of committed images."""

    def subscribe(self, listener: Callable[[MetadataImage, MetadataDelta], None]) -> None:
        """Call the listener with every image that is published from now on, and with its delta."""


@dataclass(frozen=True, slots=True)
class ApplierTargets:
    """The parts of a broker to which `MetadataApplier` applies the metadata."""

    cluster: ClusterView
    settings: DynamicConfig
    throttles: ReplicationThrottles
    logs: LocalLogs
    replicas: Replicas
    roles: ReplicaRoles
    fetchers: ReplicaFetchers
    in_sync_changes: InSyncChanges
    damaged: DamagedReplicas
    assignments: DirectoryAssignments
    work: PartitionWork
    removal: FileRemoval
    topics_deleted: Callable[[Collection[Topic]], None]
    """Called with the deleted topics, to notify the coordinators."""


class MetadataApplier:
    """Applies committed metadata to the replicas of this broker, like Apache Kafka's ReplicaManager.applyDelta. `start`
    opens the replicas that the image assigns to this broker; after that each published change is applied at once.
    """

    def __init__(self, node_id: int, to: ApplierTargets) -> None:
        self._node_id = node_id
        self._to = to
        self._unmade: dict[tuple[bytes, int], None] = {}
        """The partitions (topic id, index) that could not be created, because no log directory had space, or because
        the log of a deleted topic of the same name is still being repaired.
        """
        self._is_trying_again = False
        self._warned: dict[str, None] = {}
        """The texts of the logged warnings about topic settings without effect."""
        self.has_loaded = False
        """Whether the logs of this broker's replicas are open."""

    async def start(self, feed: MetadataFeed) -> None:
        """Open the logs of this broker's replicas, and apply each image that `feed` publishes from then on. Raises what
        `LocalLogs.open_all` raises.
        """
        to, image = self._to, self._to.cluster.image
        to.settings.follow(image)
        to.throttles.follow(image.configs, [resource for resource, _ in image.configs.by_resource.items()])
        local = {}
        wanted = {}
        async for topic, index, partition in InSlices(image.topics.partitions()):
            if self._node_id in partition.replicas:
                local[topic.name, index] = topic.id, partition
                directory = partition.directory_of(self._node_id)
                wanted[topic.name, index] = AssignedReplica(topic.id, directory, len(partition.replicas) == 1)
        logs = await to.logs.open_all(wanted, lambda topic: to.settings.topic_log_config(image, topic))
        async for key, (topic_id, assigned) in InSlices(local.items()):
            if key not in logs:
                to.replicas.add_offline(key[0], topic_id, key[1])
                if key in to.logs.damaged:
                    to.damaged.fence(key[0], topic_id, key[1], to.logs.damaged[key])
                continue
            self._add(Partition(key[0], topic_id, key[1], logs[key], to.logs.high_watermark(logs[key])), assigned)
        found: dict[str, list[str]] = {}
        async for topic_name in InSlices(tuple(to.replicas.by_name)):
            self._find_warnings(image, topic_name, found)
        self._warn(found)
        if to.cluster.image is not image:  # This image was published while the logs were opened.
            self._changed(to.cluster.image, difference_between(image, to.cluster.image))
        feed.subscribe(self._changed)
        self.has_loaded = True

    async def begin(self) -> None:
        """Make the replicas leaders or followers, once this broker is registered. A change that is published meanwhile
        is applied at once, also to a replica that has no role yet.
        """
        self._to.roles.begin()
        async for partition in InSlices(tuple(self._to.replicas)):
            topic = self._to.cluster.image.topics.by_id.get(partition.topic_id)
            if topic is not None and partition in self._to.replicas:
                self._to.roles.assume(partition, topic.partitions[partition.index])
        self._to.damaged.check_repairs()

    # Applying changes

    def _changed(self, image: MetadataImage, delta: MetadataDelta) -> None:
        to = self._to
        deleted = delta.topics.deleted.values()
        for topic in deleted:
            to.damaged.on_topic_deleted(topic.id)
            self._delete(topic.name)
        if deleted:
            to.topics_deleted(deleted)
        new: list[CreateLog] = []
        for topic_id, touched in delta.topics.changed.items():
            name = image.topics.by_id[topic_id].name
            for index, assigned in touched.items():
                if self._apply(name, topic_id, index, assigned):
                    new.append(CreateLog(name, topic_id, index))
        self._warn_of(image, delta.topics.created.values())
        self._make(new)
        if delta.configs.changed:
            self._reconfigure(image, delta)
        if delta.cluster.brokers:
            to.fetchers.on_brokers_changed()
            to.in_sync_changes.on_brokers_changed()

    def _apply(self, name: str, topic_id: bytes, index: int, assigned: Assigned) -> bool:
        """Apply the metadata of one partition. Returns whether its replica has to be created."""
        to = self._to
        if self._node_id not in assigned.replicas:
            self._leave(name, topic_id, index)
            return False
        partition = to.replicas.get(name, index)
        if partition is not None:
            to.roles.assume(partition, assigned)
        elif to.replicas.is_offline(topic_id, index):
            if to.roles.are_assumed:
                to.damaged.on_metadata_changed(topic_id, index, assigned)
        else:
            return not to.replicas.is_expected(topic_id, index)
        return False

    def _warn_of(self, image: MetadataImage, topics: Iterable[str]) -> None:
        found: dict[str, list[str]] = {}
        for topic in topics:
            self._find_warnings(image, topic, found)
        self._warn(found)

    def _find_warnings(self, image: MetadataImage, topic: str, found: dict[str, list[str]]) -> None:
        """For each setting of the topic that has no effect in this version, add the topic to the list in `found` under
        the text of that warning. Texts that were logged before are skipped.
        """
        for text in topic_warnings(image.configs.settings_of(ResourceType.TOPIC, topic)).values():
            if text not in self._warned:
                found.setdefault(text, []).append(topic)

    def _warn(self, found: Mapping[str, Sequence[str]]) -> None:
        """Log each text of `found` in one line with its topics, and remember the text: a process logs it once."""
        for text, named in found.items():
            self._warned[text] = None
            others = f" and on {len(named) - 1} more topics" if len(named) > 1 else ""
            log.warning("set on topic %s%s: %s", named[0], others, text)

    def _reconfigure(self, image: MetadataImage, delta: MetadataDelta) -> None:
        to = self._to
        changed_topics = {resource.name for resource in delta.configs.changed if resource.type == ResourceType.TOPIC}
        before = to.settings.config
        to.settings.follow(image)
        to.throttles.follow(image.configs, delta.configs.changed)
        created = set(delta.topics.created.values())
        self._warn_of(image, sorted((changed_topics & to.replicas.by_name.keys()) - created))
        for partition in to.replicas:
            if partition.topic in changed_topics or to.settings.config is not before:
                partition.log.config = to.settings.topic_log_config(image, partition.topic)
                assigned = image.topics.by_id[partition.topic_id].partitions[partition.index]
                partition.log.note_change()
                partition.min_insync_replicas = min(partition.log.config.min_insync_replicas, len(assigned.replicas))
                partition.advance_high_watermark()

    # New partitions

    def _make(self, new: Sequence[CreateLog]) -> None:
        """Create replicas: a few directly, many in an executor thread (`PartitionWork`)."""
        if self._to.work.queue_if_many(new, self):
            for each in new:
                self._to.replicas.expect(*each)
        else:
            for each in new:
                self.serve_new(each, None)

    def is_wanted(self, new: CreateLog) -> bool:
        """Whether a partition that was queued for creation is still assigned to this broker, and has no log yet."""
        topic = self._to.cluster.image.topics.by_id.get(new.topic_id)
        if topic is None or self._node_id not in topic.partitions[new.partition].replicas:
            return False
        return self._to.replicas.get(new.topic, new.partition) is None

    def drop_new(self, new: CreateLog) -> None:
        """Note that the log of a queued partition is not created. The partition is queued again once it is assigned to
        this broker again.
        """
        self._to.replicas.give_up_expected(*new)

    def log_config(self, topic: str) -> LogConfig:
        """The log settings of a topic in the latest metadata."""
        return self._to.settings.topic_log_config(self._to.cluster.image, topic)

    def serve_new(self, new: CreateLog, made: Log | None) -> None:
        """Serve a new partition as the current metadata assigns it. `made` is its log; if it is None, the log is
        created here.
        """
        to = self._to
        to.replicas.forget_expected(new.topic_id, new.partition)
        if to.replicas.is_offline(new.topic_id, new.partition):
            return
        config = self.log_config(new.topic)
        if made is None:
            try:
                made = to.logs.create(new.topic, new.partition, new.topic_id, config)
            except OSError as error:
                if not self._is_trying_again:
                    log.error(
                        "%s-%d cannot be created, and is offline until it is: %s", new.topic, new.partition, error
                    )
                to.replicas.add_offline(new.topic, new.topic_id, new.partition)
                self._unmade[new.topic_id, new.partition] = None
                return
        if made.failure is not None:
            to.replicas.add_offline(new.topic, new.topic_id, new.partition)
            return
        made.config = config
        partition = Partition(new.topic, new.topic_id, new.partition, made, made.log_start_offset)
        self._add(partition, to.cluster.image.topics.by_id[new.topic_id].partitions[new.partition])

    def make_missing(self) -> None:
        """Try again to create the partitions that could not be created."""
        image = self._to.cluster.image
        unmade, self._unmade = self._unmade, {}
        self._is_trying_again = True
        for topic_id, index in unmade:
            topic = image.topics.by_id.get(topic_id)
            if topic is not None:
                self._to.replicas.forget_offline(topic_id, index)
                self.serve_new(CreateLog(topic.name, topic_id, index), None)
        self._is_trying_again = False

    def _add(self, partition: Partition, assigned: Assigned) -> None:
        self._to.assignments.report_log(partition, assigned)
        self._to.roles.serve(partition, assigned)

    # Removed replicas

    def _delete(self, topic: str) -> None:
        partitions = self._to.replicas.remove_topic(topic)
        for partition in partitions:
            self._to.roles.forget(partition)
        self._delete_logs([partition.log for partition in partitions])

    def _leave(self, topic: str, topic_id: bytes, index: int) -> None:
        """Delete the replica of a partition that is no longer assigned to this broker.

        DIVERGES: Apache Kafka keeps a replica offline whose log directory has failed, so it cannot bring the replica up
        in another directory when the partition is assigned to the broker again, before the broker is restarted.
        """
        self._unmade.pop((topic_id, index), None)
        self._to.damaged.on_replica_left(topic_id, index)
        partition = self._to.replicas.remove(topic, topic_id, index)
        if partition is not None:
            self._to.roles.forget(partition)
            self._delete_logs([partition.log])

    def _delete_logs(self, logs: Sequence[Log]) -> None:
        """Delete logs: a few directly, many in an executor thread (`PartitionWork`)."""
        if self._to.work.queue_if_many([DeleteLog(each) for each in logs], self):
            return
        for each in logs:
            path = self._to.logs.delete(each)
            if path is not None:
                self._to.removal.remove_later([path], each.config.file_delete_delay_ms)


class ReplicationThrottles:
    """The replication quotas of this broker: one for the traffic of leaders, one for that of followers."""

    def __init__(self, config: Config) -> None:
        self._broker_id = config.node_id
        count = config.integer("replication.quota.window.num")
        sample_ms = 1000 * config.integer("replication.quota.window.size.seconds")
        self.leader = ReplicationQuota(count, sample_ms)
        self.follower = ReplicationQuota(count, sample_ms)

    def follow(self, configs: ConfigsImage, changed: Iterable[ConfigResource]) -> None:
        """Apply the current rates, and the current throttled replicas of the topics in `changed`."""
        own = configs.settings_of(ResourceType.BROKER, str(self._broker_id))
        default = configs.settings_of(ResourceType.BROKER, "")
        for quota, prefix in ((self.leader, LEADER), (self.follower, FOLLOWER)):
            quota.bytes_per_s_max = throttle_rate_setting(own, default, name=f"{prefix}rate")
            for resource in changed:
                if resource.type == ResourceType.TOPIC:
                    text = configs.settings_of(ResourceType.TOPIC, resource.name).get(f"{prefix}replicas", "")
                    quota.set_throttled_partitions(resource.name, parse_throttled_partitions(text, self._broker_id))
