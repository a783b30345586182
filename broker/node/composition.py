"""The composition of a node: makes its parts in dependency order. Each part is complete when it is made, and gets only
parts that were made before it. If a part reports to one that is made later, the later one subscribes.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from moldau.broker.apis.catalogue import routes
from moldau.broker.apis.forwarding import ClientsInProcess, Forwarding
from moldau.broker.apis.large import LargeBatches, LargeMetadata
from moldau.broker.apis.parts import LongRequests
from moldau.broker.apis.services import Services
from moldau.broker.config.config import Config
from moldau.broker.config.listeners import HttpAddress, LocalAddress, read_http_address
from moldau.broker.config.rules import RACK_AWARE
from moldau.broker.coordinators.composition import BrokerCoordinators, CoordinatorPorts
from moldau.broker.metadata.cluster_view import ClusterView, DynamicConfig
from moldau.broker.metadata.other_brokers import OtherBrokers
from moldau.broker.metadata.producer_ids import ProducerIds
from moldau.broker.metadata.publisher import MetadataPublisher
from moldau.broker.metadata.quorum import Quorum
from moldau.broker.metadata.registration import Registration, broker_identity, heartbeat_ms
from moldau.broker.metadata.topic_creation import TopicCreation
from moldau.broker.metrics.observed import Readiness
from moldau.broker.network.client_quotas import ClientQuotas, quota_windows
from moldau.broker.network.connection import RECEIVE_BUFFER_SIZE
from moldau.broker.network.connection_quota import AddressRates, SharedConnectionLimits, connection_limits
from moldau.broker.network.connection_resources import ConnectionResources, Transcoder
from moldau.broker.network.listener import Listener
from moldau.broker.network.memory import ReplyMemory, RequestMemory, receive_buffer, request_memory_size_max
from moldau.broker.network.request_times import RequestClock
from moldau.broker.network.route import ListenerRole, Route, role_of
from moldau.broker.network.slow_requests import SlowRequests
from moldau.broker.network.turns import TurnScheduler
from moldau.broker.node.quotas import NodeQuotas
from moldau.broker.node.security import NodeMechanisms, NodeSecurity
from moldau.broker.purgatory.purgatory import Purgatory
from moldau.broker.purgatory.timer_wheel import Timeouts
from moldau.broker.replicas.damaged_replicas import DamagedReplicas
from moldau.broker.replicas.directory_assignments import DirectoryAssignments
from moldau.broker.replicas.failed_directories import FailedDirectories, LogFailures
from moldau.broker.replicas.file_removal import FileRemoval
from moldau.broker.replicas.in_sync_changes import InSyncChanges
from moldau.broker.replicas.local_logs import LocalLogs, previous_run_in
from moldau.broker.replicas.log_cleaner import LogCleaner
from moldau.broker.replicas.log_directories import read_directories
from moldau.broker.replicas.log_jobs import LogJobs
from moldau.broker.replicas.metadata_applier import ApplierTargets, MetadataApplier, ReplicationThrottles
from moldau.broker.replicas.partition_work import PartitionWork
from moldau.broker.replicas.rack_aware_selector import RackAwareReplicaSelector
from moldau.broker.replicas.replica_fetchers import FetcherPorts, ReplicaFetchers
from moldau.broker.replicas.replicas import Replicas
from moldau.broker.replicas.roles import ReplicaRoles
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.flusher import Flusher
from moldau.broker.runtime.loop_steps import LoopSteps
from moldau.broker.runtime.place import MachineProcesses
from moldau.broker.runtime.tasks import Tasks
from moldau.broker.share_partitions.dead_letter_queue import DeadLetterCounts, DeadLetterPorts
from moldau.broker.share_partitions.registry import SharePartitionRegistry
from moldau.broker.share_partitions.runner import ShareCounts, SharePartitionPorts
from moldau.broker.share_partitions.settings import GroupSettings
from moldau.kraft.image.metadata_image import MetadataImage
from moldau.replication.fetch_plan import FetchPlanner
from moldau.replication.fetch_session import FetchSessions
from moldau.replication.share.sessions import ShareSessions
from moldau.replication.source import LocalLogSource
from moldau.storage.log.changed_logs import ChangedLogs

if TYPE_CHECKING:
    from moldau.broker.apis.api import Wrap
    from moldau.broker.console.kafka_client import ConsolePorts
    from moldau.broker.faults.faults import Faults
    from moldau.broker.metadata.departure import Departure
    from moldau.broker.metrics.service import Metrics
    from moldau.broker.tiering.tiering import Tiering

FORM_SIZE_MAX: Final = 65_536
"""The maximum size (bytes) of a form that a user of the console sends."""
FETCH_SESSION_EVICTION_MS: Final = 120_000
"""The time (ms) after which an unused fetch session may be evicted for a new one."""


class NodeParts:
    """The parts of one node. Only `broker/node/`, the command line and tests have access to all of them; each part has
    only those that it uses.
    """

    def __init__(
        self,
        config: Config,
        environment: Environment,
        loop: asyncio.AbstractEventLoop,
        steps: LoopSteps | None = None,
        faults: Faults | None = None,
        place: MachineProcesses | None = None,
    ) -> None:
        """`steps`: the measurements of the event loop's steps. `faults`: the faults on demand; None for a node without
        them. `place`: the place of the node among the processes of its machine.

        Raises OSError, ValueError and `RemoteStorageRefused`.
        """
        self.config = config
        self.environment = environment
        self.loop = loop
        self.node_id = config.node_id
        self.faults = faults
        self.place = place
        self.coordinator_environment, self.coordinator_loop = environment, loop
        if faults is not None:
            self.coordinator_environment, self.coordinator_loop = self._moved(faults)
        self.tasks = Tasks(environment.halt)
        self.timeouts = Timeouts(loop)
        self.purgatory = Purgatory(loop, self.timeouts, environment.monotonic_ms)
        slow = SlowRequests(loop, config.integer("moldau.slow.request.ms"))
        self.clock = RequestClock(environment.precise_ns, slow, LoopSteps() if steps is None else steps)
        self.turns = TurnScheduler(self.clock, loop.call_soon)
        self.settings = DynamicConfig(config)
        self.settings.subscribe(lambda config: slow.set_threshold(config.integer("moldau.slow.request.ms")))
        self._compose_logs()
        self._compose_metadata()
        self._compose_replicas()
        self._compose_upkeep()
        self._compose_requests()
        self._compose_listeners()
        self.readiness = Readiness(config, self.quorum, self.registration, self.logs)
        self.metrics = self._compose_metrics()

    def _moved(self, faults: Faults) -> tuple[Environment, asyncio.AbstractEventLoop]:
        """The environment and the event loop for the coordinators. The faults' control interface can move its clock."""
        from moldau.broker.faults.clock import MovableEnvironment, MovableLoop

        environment = MovableEnvironment(self.environment, faults.clock)
        return environment, MovableLoop(self.loop, faults.clock)  # type: ignore[return-value]  # by __getattr__

    def _compose_logs(self) -> None:
        """Compose the log directories, and the parts that make their logs durable."""
        config, environment = self.config, self.environment
        self.replicas = Replicas()
        self.settings.subscribe(
            lambda config: self.replicas.verify_transactions(config.flag("transaction.partition.verification.enable"))
        )
        self.flusher = Flusher(environment, Tasks(environment.halt).spawn, self.replicas.on_flushed)
        self.failures = LogFailures(self.loop)
        self.logs = LocalLogs(
            config,
            environment,
            read_directories(environment, config),
            self.failures.report_failed_directory,
            self.failures.report_damaged_log,
            self.flusher.write_epochs,
            (changes := (ChangedLogs(), ChangedLogs(), ChangedLogs())),
        )
        self.changes_to_flush, self.changes_to_clean, self.changes_to_erase = changes

    def _compose_metadata(self) -> None:
        """Compose the metadata quorum, the channels to other nodes, and the readers of the committed metadata."""
        config, environment, loop, logs = self.config, self.environment, self.loop, self.logs
        self.publisher = MetadataPublisher()
        mechanisms = NodeMechanisms(config, environment, logs.cluster_id, self.publisher.image_for_logins)
        self.security = NodeSecurity(config, environment, loop, self.tasks.spawn, mechanisms)
        self.channels, controller_channels = self.security.channels(self.timeouts)
        self.quorum = Quorum(
            environment,
            config,
            logs.properties[config.metadata_log_dir],
            self.settings,
            self.publisher,
            controller_channels,
            on_shortage=partial(logs.full_disks.on_transient_error, config.metadata_log_dir),
            on_failure=logs.forget_serving_epochs,
            previous_run=previous_run_in(logs.directories, config.metadata_log_dir),
        )
        self.cluster = ClusterView(self.quorum, logs.cluster_id, environment.random)
        timeout_ms = config.integer("request.timeout.ms")
        self.brokers = OtherBrokers(self.cluster, self.channels, config.inter_broker_listener_name, timeout_ms)
        self.registration = Registration(
            self.node_id,
            lambda: broker_identity(
                config, logs.cluster_id, environment.entropy(16), logs.directory_ids, logs.previous_broker_epoch
            ),
            self.quorum,
            heartbeat_ms(config),
            lambda: self.cluster.image.provenance.end_offset - 1,
        )
        self.departure = self._compose_departure(self.place)
        self.producer_ids = ProducerIds(self.quorum.submit, self.node_id, self._broker_epoch)
        self.topics = TopicCreation(self.quorum)

    def _compose_departure(self, place: MachineProcesses | None) -> Departure | None:
        """Compose the departure of this broker from its cluster; None for a broker that stays."""
        if place is None or not place.heirs:
            return None
        from moldau.broker.metadata.departure import Departure

        return Departure(self.node_id, place.heirs, self.publisher, self.quorum, self.registration, self.environment)

    def _compose_replicas(self) -> None:
        """Compose the replicas of this broker, and the coordinators, whose state is in some of them."""
        config, environment, loop, spawn = self.config, self.environment, self.loop, self.tasks.spawn
        self.tiering = self._compose_tiering()
        self.throttles = ReplicationThrottles(config)
        self.fetchers = ReplicaFetchers(
            FetcherPorts(
                self.node_id,
                config,
                environment,
                loop,
                self.cluster,
                self.brokers,
                self.logs,
                self.flusher,
                self.throttles.follower,
                self._broker_epoch,
                spawn,
                self.tiering.follower_state if self.tiering is not None else None,
            )
        )
        self.coordinators = BrokerCoordinators(
            CoordinatorPorts(
                self.node_id,
                config,
                self.settings,
                self.coordinator_environment,
                self.coordinator_loop,
                spawn,
                self.cluster,
                self.brokers,
                self.producer_ids,
                self.replicas,
                self.flusher,
                self.purgatory,
                self.topics,
            )
        )
        self.roles = ReplicaRoles(
            self.node_id,
            self.replicas,
            self.fetchers,
            self.flusher,
            self.coordinators.registry,
            self.purgatory.followers.on_leadership_gained,
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

    def _compose_tiering(self) -> Tiering | None:
        """Compose tiered storage.

        Returns None if remote.log.storage.system.enable is off, and on a node that is only a controller. Raises
        `RemoteStorageRefused`.
        """
        config = self.config
        if not config.is_broker or not config.flag("remote.log.storage.system.enable"):
            return None
        from moldau.broker.tiering.remote_log_metadata import RemoteLogMetadataPorts
        from moldau.broker.tiering.tiering import Tiering, TieringPorts

        metadata = RemoteLogMetadataPorts(
            self.node_id, self.environment, self.tasks.spawn, self.cluster, self.brokers, self.replicas
        )
        return Tiering(TieringPorts(metadata, self.settings, self.flusher, self.topics))

    def _compose_upkeep(self) -> None:
        """Compose the parts that repair, create and delete replicas, and apply retention."""
        config, environment, spawn = self.config, self.environment, self.tasks.spawn
        self.assignments = DirectoryAssignments(self.quorum, self.logs, self.loop, self.node_id, self._broker_epoch)
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
            self.failures,
        )
        self.failed_directories = FailedDirectories(
            self.logs,
            config.metadata_log_dir,
            self.replicas,
            self.roles,
            self.failures,
            environment.halt,
            lambda directory_id: spawn(self.registration.report_failed_directory(directory_id)),
        )
        self.partition_work = PartitionWork(environment, self.logs, self.removal)
        self.applier = MetadataApplier(
            self.node_id,
            ApplierTargets(
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
                self.coordinators.on_topics_deleted,
            ),
        )
        self.log_jobs = LogJobs(
            config,
            environment,
            self.replicas,
            self.logs,
            self.changes_to_flush,
            self.flusher,
            self.removal,
            self.applier.make_missing,
        )
        self.cleaner = LogCleaner(
            self.settings,
            environment,
            spawn,
            self.replicas,
            (self.changes_to_clean, self.changes_to_erase),
            self.flusher,
            self.removal,
            self.logs.checkpoint,
            (self.tiering.cleaner, self.tiering.eraser) if self.tiering is not None else (None, None),
        )

    def _share_partitions(self) -> SharePartitionRegistry:
        settings = GroupSettings(self.cluster, self.settings)
        dead_letters = DeadLetterPorts(
            self.config.node_id,
            self.environment,
            self.cluster,
            self.settings,
            self.brokers,
            self.topics,
            self.config.integer("request.timeout.ms"),
            lambda group_id: settings.settings_of(group_id).queue,
            DeadLetterCounts(),
        )
        ports = SharePartitionPorts(
            self.coordinator_loop,
            self.coordinator_environment,
            self.tasks.spawn,
            self.purgatory,
            self.coordinators.share_persister,
            settings,
            ShareCounts(),
            dead_letters,
            self.tiering.offsets if self.tiering is not None else None,
        )
        return SharePartitionRegistry(self.replicas, ports)

    def _compose_requests(self) -> None:
        """Compose the parts that request handlers use."""
        config, environment, loop, tiering = self.config, self.environment, self.loop, self.tiering
        self.request_memory = RequestMemory(request_memory_size_max(config), loop)
        self.reply_memory = ReplyMemory(config.integer("moldau.queued.max.reply.bytes"), loop)
        self.transcoder = Transcoder(environment, self.request_memory)
        near = config.text_or_none("replica.selector.class") == RACK_AWARE
        self.client_quotas = ClientQuotas(quota_windows(config))
        self.large_batches = LargeBatches(environment)
        self.services = Services(
            node_id=self.node_id,
            config=config,
            environment=environment,
            spawn=self.tasks.spawn,
            cluster=self.cluster,
            settings=self.settings,
            quorum=self.quorum,
            controller=Forwarding(self.quorum, self.purgatory, self.partition_work.when_done, self.client_quotas),
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
            share_coordinator=self.coordinators.share_coordinator,
            share_persister=self.coordinators.share_persister,
            latest_offsets=self.coordinators.latest_offsets,
            share_sessions=ShareSessions(config.integer("group.share.max.share.sessions")),
            share_partitions=self._share_partitions(),
            purgatory=self.purgatory,
            request_memory=self.request_memory,
            reply_memory=self.reply_memory,
            transcoder=self.transcoder,
            fetch_sessions=FetchSessions(
                config.integer("max.incremental.fetch.session.cache.slots"),
                FETCH_SESSION_EVICTION_MS,
                lambda: environment.random.randint(1, 0x7FFFFFFF),
            ),
            fetch_planner=FetchPlanner(
                self.replicas,
                LocalLogSource(),
                self.throttles.leader,
                RackAwareReplicaSelector(config.text_or_none("broker.rack"), self.cluster) if near else None,
                environment.monotonic_ms,
                tiering.source if tiering is not None else None,
            ),
            fetch_size_max=config.integer("fetch.max.bytes"),
            remote_offsets=tiering.offsets if tiering is not None else None,
            large_batches=self.large_batches,
            large_metadata=LargeMetadata(environment, self.topics, self.tasks.spawn),
            long_requests=LongRequests(environment, loop, self.tasks.spawn, self.request_memory),
            has_authorizer=self.security.authorizer is not None,
            quotas=self.client_quotas,
        )

    def _compose_listeners(self) -> None:
        """Compose the listeners, each with the routes of its role and the limits of its connections."""
        config, limits = self.config, connection_limits(self.config)
        admissions = {
            ListenerRole.BROKER: SharedConnectionLimits(
                limits, tuple(each.name for each in config.broker_listeners), config.inter_broker_listener_name
            ),
            ListenerRole.CONTROLLER: SharedConnectionLimits(
                limits, tuple(each.name for each in config.controller_listeners), None
            ),
        }
        resources = ConnectionResources(
            self.loop,
            self.environment,
            self.tasks.spawn,
            receive_buffer(RECEIVE_BUFFER_SIZE),
            self.request_memory,
            self.reply_memory,
            self.purgatory,
            self.clock,
            self.transcoder,
            self.turns,
        )
        wrap = self._compose_faults()
        self.listeners = [
            Listener(
                resources,
                each.name,
                each.host or None,
                each.port,
                role := role_of(each.name, config),
                self._routes(role, wrap),
                admissions[role],
                self.quorum.note_disconnected,
                self.security.of_listener(each.name),
                is_for_nodes=role is ListenerRole.CONTROLLER or each.name == config.inter_broker_listener_name,
                request_size_max=config.integer("socket.request.max.bytes"),
                idle_ms_max=config.integer("connections.max.idle.ms"),
                send_buffer_size=config.integer("socket.send.buffer.bytes"),
            )
            for each in config.listeners
        ]
        for each in admissions.values():
            self.settings.subscribe(partial(limit_connections, each))
        controllers = [each for each in self.listeners if each.role is ListenerRole.CONTROLLER]
        if self.security.authorizer is not None and controllers:
            ClientsInProcess(controllers[0], self.quorum)
        self.address_rates = AddressRates(self.client_quotas.limits, self.client_quotas.windows)
        self.quotas = NodeQuotas(
            self.client_quotas, self.address_rates, self.environment, self.listeners, tuple(admissions.values())
        )

    def _routes(self, role: ListenerRole, wrap: Wrap | None) -> dict[int, Route]:
        found = routes(role, self.services, is_guarded=self.services.has_authorizer, wrap=wrap)
        release = self.config.text_or_none("moldau.emulated.release")
        if release is None:
            return found
        from moldau.broker.apis.releases import limit_routes

        return limit_routes(found, release) if role is ListenerRole.BROKER else found

    def _compose_faults(self) -> Wrap | None:
        """The function that gives request handlers faults on demand; None on a node without faults."""
        if self.faults is None:
            return None
        from moldau.broker.faults.requests import FaultyRequests

        return FaultyRequests(self.faults, self.loop, self._topic_name).wrap

    def _topic_name(self, topic_id: bytes) -> str | None:
        topic = self.image.topics.by_id.get(topic_id)
        return None if topic is None else topic.name

    def _compose_metrics(self) -> Metrics | None:
        """Compose the metrics with their HTTP server and their export; None if the configuration has neither an address
        nor an export.
        """
        address = self._http_address()
        if address is None and not self.config.text_or_none("moldau.opentelemetry.endpoint"):
            return None
        from moldau.broker.metrics.observed import Observed
        from moldau.broker.metrics.service import Metrics

        observed = Observed(
            config=self.config,
            environment=self.environment,
            cluster=self.cluster,
            quorum=self.quorum,
            logs=self.logs,
            log_jobs=self.log_jobs,
            cleaner=self.cleaner,
            tiering=self.tiering,
            replicas=self.replicas,
            flusher=self.flusher,
            throttles=self.throttles,
            client_quotas=self.client_quotas,
            address_rates=self.address_rates,
            in_sync_changes=self.in_sync_changes,
            damaged=self.damaged,
            coordinators=self.coordinators,
            share_sessions=self.services.share_sessions,
            share_partitions=self.services.share_partitions,
            purgatory=self.purgatory,
            listeners=self.listeners,
            request_memory=self.request_memory,
            reply_memory=self.reply_memory,
            large_batches=self.large_batches,
            clock=self.clock,
            turns=self.turns,
            readiness=self.readiness,
        )
        ports = self._console_ports()
        pages = guard = None
        if address is not None and ports is not None and self.config.flag("moldau.console"):
            from moldau.broker.console.service import Console

            console = Console(ports)
            pages, guard = console.resources(), console.behind_login
        others = None
        if self.place is not None and self.place.sockets and self.place.is_first(self.node_id):
            from moldau.broker.metrics.machine import Processes

            others = Processes(self.node_id, self.place)
        lags = None
        if ports is not None:
            from moldau.broker.exporter.exporter import LagExporter

            lags = LagExporter(ports)
        return Metrics(observed, address, self.loop, self.tasks.spawn, pages, FORM_SIZE_MAX, guard, others, lags)

    def _http_address(self) -> HttpAddress | LocalAddress | None:
        """The address at which this node serves metrics and health; None if they are off. A further process of a
        machine serves them on a socket that only the first process uses.
        """
        if self.place is not None and self.place.sockets and not self.place.is_first(self.node_id):
            return LocalAddress(self.place.socket_of(self.node_id))
        return read_http_address(self.config.text_or_none("moldau.http.listener") or "")

    def _console_ports(self) -> ConsolePorts | None:
        """The parts that the console and the lag exporter use; None on a node that is only a controller."""
        listeners = tuple(each for each in self.listeners if each.role is ListenerRole.BROKER)
        if not listeners:
            return None
        from moldau.broker.console.decoder import REGISTRY, Decoder
        from moldau.broker.console.kafka_client import ConsolePorts

        return ConsolePorts(
            self.config,
            self.environment,
            self.cluster,
            self.quorum,
            self.brokers,
            listeners,
            self.services,
            Decoder(self.environment, self.tasks.spawn, self.config.settings.password(REGISTRY)),
            self.environment.own_threads(),
        )

    @property
    def image(self) -> MetadataImage:
        """The committed metadata."""
        return self.cluster.image

    def _broker_epoch(self) -> int:
        return self.registration.epoch


def limit_connections(admission: SharedConnectionLimits, config: Config) -> None:
    """Apply the connection limits of a configuration."""
    admission.set_limits(connection_limits(config))
