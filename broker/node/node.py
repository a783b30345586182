"""A broker put together: its parts, and the order in which they start and stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from broker.config.config import Config
from broker.config.http_address import read_address
from broker.config.internal_topics import GROUP_METADATA_TOPIC, INTERNAL_TOPICS, internal_topic
from broker.coordinators.group_settings import group_config
from broker.coordinators.groups import Groups
from broker.coordinators.partition_log import PartitionGroupLog
from broker.metadata.controller_registration import keep_registered
from broker.metadata.producer_ids import ProducerIds
from broker.metadata.quorum import Quorum
from broker.metadata.registration import Registration
from broker.metadata.settings import Settings
from broker.network.admission import Admission
from broker.network.connection import RECEIVE_BUFFER_SIZE
from broker.network.connection_quota import connection_limits
from broker.network.listener import Listener
from broker.network.peer_channel import PeerChannels
from broker.network.reply_memory import ReplyMemory
from broker.network.request_memory import RequestMemory, request_memory_size_max
from broker.node.role import role_of
from broker.node.stage import Stage
from broker.purgatory.parked_fetches import ParkedFetches
from broker.purgatory.timer_wheel import Timeouts
from broker.purgatory.wakes import Wakes
from broker.replicas.damaged_replicas import DamagedReplicas
from broker.replicas.directory_assignments import DirectoryAssignments
from broker.replicas.in_sync_changes import InSyncChanges
from broker.replicas.local_logs import LocalLogs
from broker.replicas.log_jobs import LogJobs
from broker.replicas.metadata_applier import MetadataFollower
from broker.replicas.node_directories import look_into
from broker.replicas.partition_work import PartitionWork
from broker.replicas.replica_fetchers import ReplicaFetchers
from broker.replicas.replicas import Replicas
from broker.replicas.replication_throttles import ReplicationThrottles
from broker.requests.apis import Role
from broker.requests.large_batches import LargeBatches
from broker.requests.large_metadata import LargeMetadata
from broker.requests.nearest_replica import RACK_AWARE
from broker.runtime.environment import Environment
from broker.runtime.flusher import Flusher
from broker.runtime.pending import Pending
from broker.runtime.tasks import Tasks
from kraft.image.metadata_image import MetadataImage
from protocol.errors import ErrorCode
from protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from replication.fetch_session import FetchSessions
from replication.partition import Partition
from storage.log.log import Log
from storage.log_directory import LogDirectory

if TYPE_CHECKING:
    from broker.metrics.service import Metrics

log = logging.getLogger("moldau.broker")

Response = TypeVar("Response")

OPEN_FILES_SHARE: Final = 2
"""Segments keep so much of the process's descriptors at the most: one in two. The rest is for connections, and for
files that are open for a moment."""
FETCH_SESSION_EVICTION_MS: Final = 120_000
"""A session unused for so long makes room for a new one."""


class NodeAddress(NamedTuple):
    """A broker as the clients of one listener are told of it."""

    id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool


class Broker:
    """What handlers work on. Everything here belongs to the event loop."""

    def __init__(self, config: Config, environment: Environment, loop: asyncio.AbstractEventLoop) -> None:
        self.config = config
        self.environment = environment
        self.loop = loop
        self.node_id = config.node_id
        self.tasks = Tasks(environment.halt)
        self.replicas = Replicas()
        self.flusher = Flusher(environment, Tasks(environment.halt).spawn, self._log_flushed)
        self.fetch_sessions = FetchSessions(
            config.integer("max.incremental.fetch.session.cache.slots"),
            FETCH_SESSION_EVICTION_MS,
            lambda: environment.random.randint(1, 0x7FFFFFFF),
        )
        self.fetch_size_max = config.integer("fetch.max.bytes")
        self.reads_near = config.text_or_none("replica.selector.class") == RACK_AWARE
        """Whether consumers are sent to a follower in their own rack."""
        self.described_partitions_max = config.integer("max.request.partition.size.limit")
        self.auto_creates_topics = config.flag("auto.create.topics.enable")
        self.request_memory = RequestMemory(request_memory_size_max(config), loop)
        self.large_batches = LargeBatches(self)
        self.large_metadata = LargeMetadata(self)
        self.reply_memory = ReplyMemory(config.integer("moldau.queued.max.reply.bytes"), loop)
        self.listeners: list[Listener] = []
        limits = connection_limits(config)
        self.admissions = {
            Role.BROKER: Admission(
                limits, tuple(each.name for each in config.broker_listeners), config.inter_broker_listener_name
            ),
            Role.CONTROLLER: Admission(limits, tuple(each.name for each in config.controller_listeners), None),
        }
        self.stage = Stage.STARTING
        self.metrics: Metrics | None = None
        self.damaged = DamagedReplicas(self)
        self.logs = LocalLogs(
            config, environment, look_into(environment, config), self._directory_fails, self.damaged.found
        )
        self.log_jobs = LogJobs(self)
        self.cluster_id = self.logs.cluster_id
        self.settings = Settings(config)
        self.settings.watchers.append(self._settings_changed)
        self.timeouts = Timeouts(loop)
        self.wakes = Wakes(loop)
        self.channels = PeerChannels(loop, self.timeouts, f"node-{config.node_id}")
        properties = self.logs.properties[config.metadata_log_dir]
        self.quorum = Quorum(environment, config, properties, self.settings, self.channels)
        self.quorum.on_shortage = partial(self.logs.space.refused, config.metadata_log_dir)
        self.quorum.on_failure = self.logs.forget_lives
        self.partition_work = PartitionWork(self)
        self.follower = MetadataFollower(self)
        self.throttles = ReplicationThrottles(config)
        self.fetchers = ReplicaFetchers(self)
        self.parked_fetches = ParkedFetches(environment.monotonic_ms)
        self.in_sync_changes = InSyncChanges(self)
        self.role = role_of(self)
        self.registration: Registration
        self.assignments = DirectoryAssignments(self.quorum, loop, self.node_id, lambda: self.registration.epoch)
        self.producer_ids: ProducerIds
        self.groups = Groups(
            group_config(config),
            environment,
            loop,
            self.tasks.spawn,
            lambda: self._partition_count(GROUP_METADATA_TOPIC),
        )
        self._topics_being_created: dict[str, None] = {}

    # What handlers ask

    @property
    def image(self) -> MetadataImage:
        """The committed metadata."""
        return self.quorum.image

    @property
    def log_dirs(self) -> tuple[str, ...]:
        return self.config.log_dirs

    def is_internal(self, topic: str) -> bool:
        return topic in INTERNAL_TOPICS

    def nodes(self, listener_name: str) -> Iterator[NodeAddress]:
        """The brokers that can be reached through a listener of this name, in the order of their ids."""
        for _, node in sorted(self.image.cluster.brokers.items()):
            endpoint = node.endpoints.get(listener_name)
            if endpoint is not None:
                yield NodeAddress(node.id, endpoint.host, endpoint.port, node.rack, node.fenced)

    def live_nodes(self, listener_name: str) -> Iterator[NodeAddress]:
        return (node for node in self.nodes(listener_name) if not node.is_fenced)

    def is_alive(self, node_id: int) -> bool:
        """Whether a broker is known, and not fenced."""
        node = self.image.cluster.brokers.get(node_id)
        return node is not None and not node.fenced

    def any_live_node_id(self) -> int:
        """A broker to which clients may send what is the controller's: every broker passes it on."""
        brokers = self.image.cluster.brokers
        live = [node_id for node_id, node in brokers.items() if not node.fenced]
        return self.environment.random.choice(live) if live else -1

    def ask_controller(self, request: object, version: int) -> Pending[Response]:
        """Pass a request of this version on to the active controller; its answer is the reply."""
        reply: Pending[Response] = Pending()
        self.quorum.submit(request, reply.complete, version)
        return reply

    def ask_for_partitions(self, request: object, version: int) -> Pending[Response]:
        """Pass a request for new partitions on to the controller; the reply comes when they are there."""
        reply: Pending[Response] = Pending()

        def answered(response: Response) -> None:
            self.partition_work.when_done(lambda: reply.complete(response))

        self.quorum.submit(request, answered, version)
        return reply

    def create_topic(
        self, name: str, partitions: int = -1, replication_factor: int = -1, configs: dict[str, str] | None = None
    ) -> None:
        """Have a topic created, without waiting; -1 is the default. Asking again meanwhile does nothing."""
        if name in self._topics_being_created:
            return
        self._topics_being_created[name] = None

        def created(response: CreateTopicsResponse) -> None:
            del self._topics_being_created[name]
            for topic in response.topics:
                if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    log.warning("topic %s was not created: %s", name, topic.error_message)

        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        self.quorum.submit(CreateTopicsRequest(topics=[topic]), created)

    def create_internal_topic(self, name: str) -> None:
        """Have a topic created that brokers write themselves, with the settings that its writers need."""
        partitions, replication_factor, configs = internal_topic(self.config, name)
        self.create_topic(name, partitions, replication_factor, configs)

    def partition_gained(self, partition: Partition) -> None:
        """This broker leads a partition that it did not lead before."""
        if partition.topic == GROUP_METADATA_TOPIC:
            self.groups.gained(PartitionGroupLog(partition, self.flusher.flush))

    def partition_lost(self, partition: Partition) -> None:
        if partition.topic == GROUP_METADATA_TOPIC:
            self.groups.lost(partition.index)

    def spawn(self, work: Coroutine[object, object, None]) -> None:
        """Run a coroutine under supervision."""
        self.tasks.spawn(work)

    # Life

    def not_ready(self) -> list[str]:
        """Why clients are not served yet, or no more; empty where they are."""
        if self.stage is not Stage.RUNNING:
            return [f"the node is {self.stage.name.lower()}"]
        reasons = [] if self.quorum.leader_id >= 0 else ["nobody leads the metadata quorum"]
        return reasons + self.role.not_ready()

    def impaired(self) -> list[str]:
        """What is not as it should be, though clients are served."""
        offline = [f"log directory {path} is offline: {why}" for path, why in self.logs.offline.items()]
        return offline + [f"log directory {path} is full" for path in self.logs.space.full]

    async def start(self) -> None:
        """Bind, load, join the cluster, serve. Raises what makes it impossible, with nothing left running."""
        self.metrics = await self._start_metrics()
        receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_SIZE))
        for each in self.config.listeners:
            role = Role.CONTROLLER if each.name in self.config.controller_listener_names else Role.BROKER
            admission = self.admissions[role]
            listener = Listener(
                self,
                each.name,
                each.host or None,
                each.port,
                role,
                receive_buffer,
                admission,
                request_size_max=self.config.integer("socket.request.max.bytes"),
                idle_ms_max=self.config.integer("connections.max.idle.ms"),
            )
            await listener.bind()
            admission.listeners.append(listener)
            self.listeners.append(listener)
            if self.metrics is not None:
                self.metrics.watch(listener)
        await self.quorum.open()
        for listener in self.listeners:
            if listener.role is Role.CONTROLLER:
                await listener.accept()
        await self.quorum.join()
        if self.config.is_controller:
            self.spawn(keep_registered(self.quorum, self.config))
        await self.role.start()
        self.stage = Stage.RUNNING
        for path in self.logs.offline:
            self._tell_of_failed(path)

    async def stop(self) -> None:
        """Leave cleanly: no new requests, leadership handed over, logs flushed, a mark that no recovery is needed."""
        self.stage = Stage.STOPPING
        await self.role.leave()
        for listener in self.listeners:
            await listener.stop()
        self.fetchers.end()
        self.groups.close()
        if self.metrics is not None:
            self.metrics.stop()
        await self.partition_work.finish()
        await self.flusher.finish()
        await self.tasks.stop()
        self.environment.fs.open_files.unbound()
        await self.quorum.stop()
        await self.partition_work.finish()  # of what the last metadata brought
        await self.flusher.finish()
        await self.logs.close(self.role.epoch, self.log_jobs.high_watermarks())

    async def _start_metrics(self) -> Metrics | None:
        """Before all else, so that somebody can watch a long recovery."""
        address = read_address(self.config.text_or_none("moldau.http.listener") or "")
        if address is None:
            return None
        from broker.metrics.service import Metrics

        metrics = Metrics(self)
        await metrics.start(address)
        log.info("metrics and health on http://%s:%d", address.host or "*", address.port)
        return metrics

    def _settings_changed(self, config: Config) -> None:
        limits = connection_limits(config)
        for admission in self.admissions.values():
            admission.set_limits(limits)

    def _partition_count(self, internal: str) -> int:
        """Of an internal topic that may not have been made yet."""
        topic = self.image.topics.by_name(internal)
        return len(topic.partitions) if topic is not None else internal_topic(self.config, internal).partitions

    def _log_flushed(self, flushed: Log) -> None:
        partition = self.replicas.get(flushed.topic, flushed.partition)
        if partition is not None and partition.log is flushed:
            partition.advance()

    def bound_open_files(self) -> None:
        """Once the logs are loaded, beside the loop: from here on only the loop gives files back."""
        count_max = self.config.integer("moldau.open.files.max")
        if count_max < 0:
            count_max = max(1, self.environment.descriptors_max() // OPEN_FILES_SHARE)
        self.environment.fs.open_files.bound(count_max, self.loop.call_soon_threadsafe)

    # A disk that fails

    def _directory_fails(self, directory: LogDirectory) -> None:
        """Called in the midst of an append, say: what follows from it waits for the next turn of the loop."""
        self.loop.call_soon(self._directory_failed, directory)

    def _directory_failed(self, directory: LogDirectory) -> None:
        """Its partitions are offline, and the controller is told. Without metadata, or without any log directory, the
        node stops rather than guess."""
        if directory.path == self.config.metadata_log_dir:
            self.environment.halt(f"the metadata log directory {directory.path} has failed: {directory.failure}")
        if not self.logs.directories:
            self.environment.halt(f"the last log directory {directory.path} has failed: {directory.failure}")
        for partition in tuple(self.replicas):
            if self.logs.directory_of(partition.log) == directory.path:
                self.partition_lost(partition)
                self.fetchers.unfollow(partition)
                self.replicas.take_offline(partition)
        directory.abandon()
        if self.stage is not Stage.STARTING:
            self._tell_of_failed(directory.path)

    def _tell_of_failed(self, path: str) -> None:
        properties = self.logs.properties.get(path)
        if properties is not None and properties.directory_id is not None:
            self.role.directory_failed(properties.directory_id)
