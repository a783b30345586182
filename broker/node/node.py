"""The composition of a node: its parts in dependency order, and the order in which they start and stop."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from moldau.broker.config.config import Config
from moldau.broker.config.replica_selectors import RACK_AWARE
from moldau.broker.coordinators.composition import BrokerCoordinators, CoordinatorPorts
from moldau.broker.metadata.broker_identity import broker_identity, heartbeat_ms
from moldau.broker.metadata.cluster_view import ClusterView
from moldau.broker.metadata.controller_registration import keep_registered
from moldau.broker.metadata.dynamic_config import DynamicConfig
from moldau.broker.metadata.producer_ids import ProducerIds
from moldau.broker.metadata.quorum import Quorum
from moldau.broker.metadata.registration import BrokerIdentity, Registration
from moldau.broker.metadata.topic_creation import TopicCreation
from moldau.broker.network.admission import Admission
from moldau.broker.network.connection import RECEIVE_BUFFER_SIZE
from moldau.broker.network.connection_quota import connection_limits
from moldau.broker.network.connection_resources import ConnectionResources, Transcoder
from moldau.broker.network.listener import Listener
from moldau.broker.network.listener_role import ListenerRole, role_of
from moldau.broker.network.reply_memory import ReplyMemory
from moldau.broker.network.request_memory import RequestMemory, request_memory_size_max
from moldau.broker.node.mechanisms import NodeMechanisms
from moldau.broker.node.metrics import compose_metrics, request_clock
from moldau.broker.node.open_files import bound_open_files
from moldau.broker.node.quotas import NodeQuotas
from moldau.broker.node.security import NodeSecurity
from moldau.broker.node.tiering import compose_tiering
from moldau.broker.purgatory.purgatory import Purgatory
from moldau.broker.purgatory.timer_wheel import Timeouts
from moldau.broker.replicas.damaged_replicas import DamagedReplicas
from moldau.broker.replicas.directory_assignments import DirectoryAssignments
from moldau.broker.replicas.failed_directories import FailedDirectories
from moldau.broker.replicas.file_removal import FileRemoval
from moldau.broker.replicas.in_sync_changes import InSyncChanges
from moldau.broker.replicas.local_logs import LocalLogs
from moldau.broker.replicas.log_cleaner import LogCleaner
from moldau.broker.replicas.log_failures import LogFailures
from moldau.broker.replicas.log_jobs import LogJobs
from moldau.broker.replicas.metadata_applier import AppliedTo, MetadataApplier
from moldau.broker.replicas.node_directories import look_into
from moldau.broker.replicas.partition_work import PartitionWork
from moldau.broker.replicas.replica_fetchers import FetcherPorts, ReplicaFetchers
from moldau.broker.replicas.replicas import Replicas
from moldau.broker.replicas.replication_throttles import ReplicationThrottles
from moldau.broker.replicas.roles import ReplicaRoles
from moldau.broker.requests.forwarding import Forwarding
from moldau.broker.requests.large_batches import LargeBatches
from moldau.broker.requests.large_metadata import LargeMetadata
from moldau.broker.requests.parts import LongRequests
from moldau.broker.requests.rack_aware_selector import RackAwareReplicaSelector
from moldau.broker.requests.services import Services
from moldau.broker.requests.table import routes
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.flusher import Flusher
from moldau.broker.runtime.loop_steps import LoopSteps
from moldau.broker.runtime.stage import Stage
from moldau.broker.runtime.tasks import Tasks
from moldau.kraft.image.metadata_image import MetadataDelta, MetadataImage
from moldau.replication.fetch_plan import FetchPlanner
from moldau.replication.fetch_session import FetchSessions
from moldau.replication.source import LocalLog

FETCH_SESSION_EVICTION_MS: Final = 120_000
"""The time (ms) after which an unused fetch session may be evicted for a new one."""
SHUTDOWN_PATIENCE_MS: Final = 10_000
"""The time (ms) that a controlled shutdown waits for the controller."""


class Node:
    """The parts of one node. Only `broker/node/`, the command line and tests hold a node; each part holds what it uses.

    All methods are called on the event loop.
    """

    def __init__(
        self, config: Config, environment: Environment, loop: asyncio.AbstractEventLoop, steps: LoopSteps | None = None
    ) -> None:
        self.config = config
        self.environment = environment
        self.loop = loop
        self.node_id = config.node_id
        self.stage = Stage.STARTING
        self.tasks = Tasks(environment.halt)
        self.clock = request_clock(config, environment, loop, steps)
        self._compose_metadata()
        self._compose_replicas()
        self._compose_requests()

    def _compose_metadata(self) -> None:
        """Compose the log directories, the metadata quorum, and the readers of the committed metadata."""
        config, environment, loop = self.config, self.environment, self.loop
        self.failures = LogFailures(loop)
        self.logs = LocalLogs(
            config,
            environment,
            look_into(environment, config),
            self.failures.directory_failed,
            self.failures.log_damaged,
            lambda log: self.flusher.write_epochs(log),
        )
        self.settings = DynamicConfig(config)
        self.timeouts = Timeouts(loop)
        self.purgatory = Purgatory(loop, self.timeouts, environment.monotonic_ms)
        mechanisms = NodeMechanisms(config, environment, self.logs.cluster_id, lambda: self.quorum.image_for_logins())
        self.security = NodeSecurity(config, environment, loop, self.tasks.spawn, mechanisms)
        self.channels, controller_channels = self.security.channels(self.timeouts)
        properties = self.logs.properties[config.metadata_log_dir]
        shortage, failure = partial(self.logs.space.refused, config.metadata_log_dir), self.logs.forget_serving_epochs
        self.quorum = Quorum(environment, config, properties, self.settings, controller_channels, shortage, failure)
        self.cluster = ClusterView(self.quorum, self.logs.cluster_id, environment.random)
        self.registration = Registration(
            self.node_id,
            self._identity,
            self.quorum,
            heartbeat_ms(config),
            lambda: self.image.provenance.end_offset - 1,
        )
        self.producer_ids = ProducerIds(self.quorum.submit, self.node_id, self._broker_epoch)
        self.topics = TopicCreation(self.quorum)

    def _compose_replicas(self) -> None:
        """Compose the replicas of this broker, and the coordinators whose state is in them."""
        config, environment, loop, spawn = self.config, self.environment, self.loop, self.tasks.spawn
        self.replicas = Replicas()
        self.flusher = Flusher(environment, Tasks(environment.halt).spawn, self.replicas.flushed)
        self.throttles = ReplicationThrottles(config)
        self.fetchers = ReplicaFetchers(
            FetcherPorts(
                self.node_id,
                config,
                environment,
                loop,
                self.cluster,
                self.channels,
                self.logs,
                self.flusher,
                self.throttles.follower,
                self._broker_epoch,
                spawn,
            )
        )
        self.coordinators = BrokerCoordinators(
            CoordinatorPorts(
                self.node_id,
                config,
                environment,
                loop,
                spawn,
                self.cluster,
                self.channels,
                self.producer_ids,
                self.replicas,
                self.flusher,
                self.purgatory,
            )
        )
        self.roles = ReplicaRoles(
            self.node_id,
            self.replicas,
            self.fetchers,
            self.flusher,
            self.coordinators.registry,
            self.purgatory.followers.leadership_gained,
            environment.monotonic_ms,
        )
        self.in_sync_changes = InSyncChanges(
            self.node_id,
            config.integer("replica.lag.time.max.ms"),
            self.replicas,
            self.cluster,
            self.quorum,
            self._broker_epoch,
            environment,
            loop,
        )
        self.assignments = DirectoryAssignments(self.quorum, self.logs, loop, self.node_id, self._broker_epoch)
        self._compose_upkeep()

    def _compose_upkeep(self) -> None:
        """Compose the parts that repair, create, delete and retain replicas."""
        config, environment, spawn = self.config, self.environment, self.tasks.spawn
        self.removal = FileRemoval(environment, spawn)
        self.damaged = DamagedReplicas(
            self.node_id,
            self.loop,
            spawn,
            self.cluster,
            self.settings,
            self.logs,
            self.replicas,
            self.roles,
            self.flusher,
            self.assignments,
            self.removal,
        )
        self.partition_work = PartitionWork(environment, self.logs, self.removal)
        self.applier = MetadataApplier(
            self.node_id,
            AppliedTo(
                self.cluster,
                self.settings,
                self.throttles,
                self.logs,
                self.replicas,
                self.roles,
                self.fetchers,
                self.in_sync_changes,
                self.damaged,
                self.assignments,
                self.partition_work,
                self.removal,
                self.coordinators.groups.topics_deleted,
            ),
        )
        self.log_jobs = LogJobs(
            config, environment, self.replicas, self.logs, self.flusher, self.removal, self.applier.make_missing
        )
        self.cleaner = LogCleaner(
            self.settings, environment, spawn, self.replicas, self.flusher, self.removal, self.logs.checkpoint
        )
        self.tiering = compose_tiering(self)
        self.failed_directories = FailedDirectories(
            self.logs, config.metadata_log_dir, self.replicas, self.roles, environment.halt
        )
        self.failures.attach(directory_failed=self.failed_directories.failed, log_damaged=self.damaged.found)

    def _compose_requests(self) -> None:
        """Compose the listeners, and the handlers of their requests."""
        config, environment, loop = self.config, self.environment, self.loop
        self.request_memory = RequestMemory(request_memory_size_max(config), loop)
        self.reply_memory = ReplyMemory(config.integer("moldau.queued.max.reply.bytes"), loop)
        self.fetch_sessions = FetchSessions(
            config.integer("max.incremental.fetch.session.cache.slots"),
            FETCH_SESSION_EVICTION_MS,
            lambda: environment.random.randint(1, 0x7FFFFFFF),
        )
        near = config.text_or_none("replica.selector.class") == RACK_AWARE
        rack = config.text_or_none("broker.rack")
        self.fetch_planner = FetchPlanner(
            self.replicas,
            LocalLog(),
            self.throttles.leader,
            RackAwareReplicaSelector(rack, self.cluster) if near else None,
            environment.monotonic_ms,
            self.tiering.source if self.tiering is not None else None,
        )
        self.quotas = NodeQuotas(config, environment)
        self.controller = Forwarding(self.quorum, self.purgatory, self.partition_work.when_done, self.quotas.clients)
        self.large_batches = LargeBatches(environment)
        self.services = Services(
            node_id=self.node_id,
            config=config,
            environment=environment,
            spawn=self.tasks.spawn,
            cluster=self.cluster,
            settings=self.settings,
            quorum=self.quorum,
            controller=self.controller,
            topics=self.topics,
            producer_ids=self.producer_ids,
            logs=self.logs,
            replicas=self.replicas,
            flusher=self.flusher,
            in_sync_changes=self.in_sync_changes,
            coordinators=self.coordinators.registry,
            groups=self.coordinators.groups,
            transactions=self.coordinators.transactions,
            transaction_verifier=self.coordinators.transaction_verifier,
            markers=self.coordinators.markers,
            purgatory=self.purgatory,
            request_memory=self.request_memory,
            reply_memory=self.reply_memory,
            fetch_sessions=self.fetch_sessions,
            fetch_planner=self.fetch_planner,
            fetch_size_max=config.integer("fetch.max.bytes"),
            remote_offsets=self.tiering.offsets if self.tiering is not None else None,
            large_batches=self.large_batches,
            large_metadata=LargeMetadata(environment, self.topics, self.tasks.spawn),
            long_requests=LongRequests(environment, loop, self.tasks.spawn),
            has_authorizer=self.security.authorizer is not None,
            quotas=self.quotas.clients,
        )
        self._compose_listeners()
        self.metrics = compose_metrics(self)

    def _compose_listeners(self) -> None:
        """Compose the listeners' addresses, each with the routes of its role."""
        config, limits = self.config, connection_limits(self.config)
        self.admissions = {
            ListenerRole.BROKER: Admission(
                limits, tuple(each.name for each in config.broker_listeners), config.inter_broker_listener_name
            ),
            ListenerRole.CONTROLLER: Admission(limits, tuple(each.name for each in config.controller_listeners), None),
        }
        self.settings.watchers.append(self._settings_changed)
        self._settings_changed(config)
        resources = ConnectionResources(
            self.loop,
            self.environment,
            self.tasks.spawn,
            memoryview(bytearray(RECEIVE_BUFFER_SIZE)),
            self.request_memory,
            self.reply_memory,
            self.purgatory,
            self.clock,
            Transcoder(self.environment, self.request_memory),
        )
        self.listeners = [
            Listener(
                resources,
                each.name,
                each.host or None,
                each.port,
                role := role_of(each.name, config),
                routes(role, self.services, is_guarded=self.services.has_authorizer),
                self.admissions[role],
                self.quorum.disconnected,
                self.security.of_listener(each.name),
                request_size_max=config.integer("socket.request.max.bytes"),
                idle_ms_max=config.integer("connections.max.idle.ms"),
                send_buffer_size=config.integer("socket.send.buffer.bytes"),
            )
            for each in config.listeners
        ]
        for listener in self.listeners:
            self.admissions[listener.role].listeners.append(listener)
        self.security.attach(self.listeners, self.quorum)
        self.quotas.attach(self.listeners, self.admissions.values())

    # Read later by the parts

    @property
    def image(self) -> MetadataImage:
        """The committed metadata."""
        return self.cluster.image

    def _broker_epoch(self) -> int:
        return self.registration.epoch

    def _identity(self) -> BrokerIdentity:
        return broker_identity(
            self.config,
            self.cluster.id,
            self.environment.entropy(16),
            self.logs.directory_ids,
            self.logs.previous_broker_epoch,
        )

    def _settings_changed(self, config: Config) -> None:
        for admission in self.admissions.values():
            admission.set_limits(connection_limits(config))
        self.clock.slow.set_threshold(config.integer("moldau.slow.request.ms"))
        self.replicas.verify_transactions(config.flag("transaction.partition.verification.enable"))

    # Health

    def not_ready(self) -> list[str]:
        """Why this node does not serve clients; empty where it does."""
        if self.stage is not Stage.RUNNING:
            return [f"the node is {self.stage.name.lower()}"]
        reasons = [] if self.quorum.leader_id >= 0 else ["the metadata quorum has no leader"]
        if self.config.is_broker and self.registration.is_fenced:
            reasons.append("the controller has fenced this broker")
        return reasons

    # Life

    async def start(self) -> None:
        """Bind the listeners, load the logs, join the cluster, serve. Raises the error that prevents the start, after
        everything was stopped.

        Metrics come first, so that a long recovery can be watched. Controllers listen before they join: their peers
        may need them for a majority.
        """
        if self.metrics is not None:
            await self.metrics.start()
        self.security.begin()
        for listener in self.listeners:
            await listener.bind()
        await self.quorum.open()
        await self._accept(ListenerRole.CONTROLLER)
        await self.quorum.join()
        self.security.follow(self.quorum)
        self.quotas.begin(self.quorum)
        if self.config.is_controller:
            self.tasks.spawn(keep_registered(self.quorum, self.config))
        if self.config.is_broker:
            await self._start_broker()
        else:
            self.settings.follow(self.image)
            self.quorum.subscribe(self._follow_settings)
        self.stage = Stage.RUNNING
        if self.config.is_broker:
            self.failed_directories.begin(lambda each: self.tasks.spawn(self.registration.directory_failed(each)))

    async def _start_broker(self) -> None:
        """Load the replicas, register, take their roles, serve clients."""
        if self.tiering is not None:
            await self.tiering.check_storage()
        await self.applier.start(self.quorum)
        bound_open_files(self.config, self.environment, self.loop)
        await self.registration.register(self.config.integer("initial.broker.registration.timeout.ms"))
        self.logs.note_serving_epoch(self.registration.epoch)
        self.applier.begin()
        self.assignments.begin()
        self.fetchers.begin()
        self.tasks.spawn(self.registration.keep_alive())
        for job in (*self.log_jobs.jobs(), self.in_sync_changes.job()):
            self.tasks.every(job)
        self.cleaner.begin()
        if self.tiering is not None:
            self.tiering.begin()
        self.removal.remove_later(self.logs.left_to_remove(), 0)
        await self._accept(ListenerRole.BROKER)

    async def _accept(self, role: ListenerRole) -> None:
        for listener in self.listeners:
            if listener.role is role:
                await listener.accept()

    def _follow_settings(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Follow the dynamic settings, on a node that is only a controller."""
        if delta.configs.changed:
            self.settings.follow(image)

    async def stop(self) -> None:
        """Stop cleanly: hand leadership over, refuse requests, flush the logs, mark the directories as shut down."""
        self.stage = Stage.STOPPING
        if self.config.is_broker and self.config.flag("controlled.shutdown.enable"):
            await self.registration.shut_down(SHUTDOWN_PATIENCE_MS)
        for listener in self.listeners:
            await listener.stop()
        self.fetchers.end()
        self.coordinators.registry.close()
        if self.metrics is not None:
            self.metrics.stop()
        await self.partition_work.finish()
        await self.flusher.finish()
        await self.tasks.stop()
        if self.tiering is not None:
            await self.tiering.close()
        self.environment.fs.open_files.unbound()
        await self.quorum.stop()
        self.channels.close()
        await self.partition_work.finish()  # The tasks of the last published metadata.
        await self.flusher.finish()
        await self.logs.close(self.registration.epoch, self.log_jobs.high_watermarks())
