"""The services of a node for its handlers. Each handler declares the part that it uses, by a Protocol."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from broker.config.config import Config
from broker.coordinators.groups import Groups
from broker.coordinators.marker_writer import MarkerWriter
from broker.coordinators.registry import CoordinatorRegistry
from broker.coordinators.transaction_verifier import TransactionVerifier
from broker.coordinators.transactions import TransactionCoordinator
from broker.metadata.cluster_view import ClusterView
from broker.metadata.dynamic_config import DynamicConfig
from broker.metadata.producer_ids import ProducerIds
from broker.metadata.quorum import Quorum
from broker.metadata.topic_creation import TopicCreation
from broker.network.quotas.client_quotas import ClientQuotas
from broker.network.reply_memory import ReplyMemory
from broker.network.request_memory import RequestMemory
from broker.purgatory.purgatory import Purgatory
from broker.replicas.in_sync_changes import InSyncChanges
from broker.replicas.local_logs import LocalLogs
from broker.replicas.replicas import Replicas
from broker.requests.forwarding import Forwarding
from broker.requests.large_batches import LargeBatches
from broker.requests.large_metadata import LargeMetadata
from broker.requests.parts import LongRequests
from broker.runtime.environment import Environment
from broker.runtime.flusher import Flusher
from broker.runtime.tasks import Spawn
from replication.fetch_plan import FetchPlanner
from replication.fetch_session import FetchSessions
from security.quotas.sampled_rate import Windows

if TYPE_CHECKING:
    from broker.tiering.remote_offsets import RemoteOffsets


@dataclass(frozen=True, slots=True)
class Services:
    """All services, made once, in `broker/node/`. They are used only on the event loop."""

    node_id: int
    config: Config
    """The configuration at the start; `settings` includes dynamic changes."""
    environment: Environment
    spawn: Spawn
    cluster: ClusterView
    settings: DynamicConfig
    quorum: Quorum
    controller: Forwarding
    topics: TopicCreation
    producer_ids: ProducerIds
    logs: LocalLogs
    replicas: Replicas
    flusher: Flusher
    in_sync_changes: InSyncChanges
    coordinators: CoordinatorRegistry
    groups: Groups
    transactions: TransactionCoordinator
    transaction_verifier: TransactionVerifier
    markers: MarkerWriter
    purgatory: Purgatory
    request_memory: RequestMemory
    reply_memory: ReplyMemory
    fetch_sessions: FetchSessions
    fetch_planner: FetchPlanner
    fetch_size_max: int
    """fetch.max.bytes, in bytes."""
    remote_offsets: RemoteOffsets | None
    """Lookups in remote storage; None where tiered storage is off."""
    large_batches: LargeBatches
    large_metadata: LargeMetadata
    long_requests: LongRequests
    quotas: ClientQuotas = field(default_factory=lambda: ClientQuotas(Windows()))
    has_authorizer: bool = False
    """Whether an authorizer decides what clients may do."""
