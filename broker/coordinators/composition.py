"""Creates the group, transaction and share coordinators of a broker, and connects them with each other."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from moldau.broker.config.config import Config
from moldau.broker.coordinators.group_coordinator import group_coordinator_config
from moldau.broker.coordinators.groups import Groups
from moldau.broker.coordinators.image import CurrentImage
from moldau.broker.coordinators.latest_offsets import LatestOffsets
from moldau.broker.coordinators.marker_sender import MarkerSender
from moldau.broker.coordinators.marker_writer import MarkerWriter
from moldau.broker.coordinators.registry import CoordinatorRegistry
from moldau.broker.coordinators.shards import Shards
from moldau.broker.coordinators.share_coordinator import ShareCoordinator, share_state_config
from moldau.broker.coordinators.share_state_persister import ShareStatePersister
from moldau.broker.coordinators.transaction_verifier import TransactionVerifier
from moldau.broker.coordinators.transactions import transaction_config, transaction_coordinator_definition
from moldau.broker.metadata.cluster_view import ClusterView, DynamicConfig
from moldau.broker.metadata.other_brokers import OtherBrokers
from moldau.broker.metadata.producer_ids import ProducerIds
from moldau.broker.metadata.topic_creation import TopicCreation
from moldau.broker.purgatory.purgatory import Purgatory
from moldau.broker.replicas.replicas import Replicas
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.flusher import Flusher
from moldau.broker.runtime.tasks import Spawn
from moldau.kraft.features import TRANSACTION_VERSION
from moldau.kraft.image.topics import Topic
from moldau.protocol.late_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class CoordinatorPorts:
    """The parts of the broker that the coordinators use."""

    node_id: int
    config: Config
    settings: DynamicConfig
    environment: Environment
    loop: asyncio.AbstractEventLoop
    spawn: Spawn
    cluster: ClusterView
    brokers: OtherBrokers
    producer_ids: ProducerIds
    replicas: Replicas
    flusher: Flusher
    purgatory: Purgatory
    topics: TopicCreation


class BrokerCoordinators:
    """The coordinators of a broker.

    `registry` is notified of the partitions that this broker begins and ceases to lead.
    """

    def __init__(self, ports: CoordinatorPorts) -> None:
        config, environment, loop, cluster = ports.config, ports.environment, ports.loop, ports.cluster
        current_image = CurrentImage(cluster)
        self.share_coordinator = ShareCoordinator(
            share_state_config(config), environment, loop, ports.spawn, cluster.partitions_count, current_image
        )
        self.share_persister = ShareStatePersister(
            ports.node_id, loop, cluster, ports.brokers, ports.topics, self.share_coordinator
        )
        self.latest_offsets = LatestOffsets(ports.node_id, cluster, ports.brokers, ports.replicas)
        self.groups = Groups(
            group_coordinator_config(config),
            environment,
            loop,
            ports.spawn,
            cluster.partitions_count,
            current_image,
            self.share_persister,
            ports.replicas.log_start_of,
        )
        ports.settings.subscribe(lambda in_force: self.groups.configure(group_coordinator_config(in_force)))
        self.markers = MarkerWriter(environment, ports.replicas, ports.flusher, ports.purgatory, self.groups)
        sender = MarkerSender(ports.node_id, loop, cluster, ports.brokers, self.markers)
        transactions = transaction_coordinator_definition(
            transaction_config(config),
            ports.producer_ids.next_id,
            lambda: cluster.image.features.levels.get(TRANSACTION_VERSION, 0),
            sender.perform,
        )
        self.transactions = Shards(transactions, environment, loop, ports.spawn, cluster.partitions_count)
        self.transaction_verifier = TransactionVerifier(
            ports.node_id,
            loop,
            cluster,
            ports.brokers,
            self.transactions,
            retry_ms=config.integer("add.partitions.to.txn.retry.backoff.ms"),
            retry_ms_max=config.integer("add.partitions.to.txn.retry.backoff.max.ms"),
        )
        coordinators = (self.groups, self.transactions, self.share_coordinator.shards)
        self.registry = CoordinatorRegistry(coordinators, ports.flusher.flush)

    def on_topics_deleted(self, topics: Collection[Topic]) -> None:
        """Delete what the group coordinator and the share coordinator store about deleted topics: committed offsets,
        subscriptions and share state. The published image must not have `topics` any more.
        """
        self.groups.on_topics_deleted((topic.name for topic in topics), (topic.id for topic in topics))
        self.share_coordinator.on_topics_deleted(topic.id for topic in topics)
