"""The services of a node that handlers use."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from moldau.broker.apis.forwarding import Forwarding
from moldau.broker.apis.large import LargeBatches, LargeMetadata
from moldau.broker.apis.parts import LongRequests
from moldau.broker.config.config import Config
from moldau.broker.coordinators.groups import Groups
from moldau.broker.coordinators.lag_history import LagHistory
from moldau.broker.coordinators.latest_offsets import LatestOffsets
from moldau.broker.coordinators.marker_writer import MarkerWriter
from moldau.broker.coordinators.node_status import NodeStatus
from moldau.broker.coordinators.registry import CoordinatorRegistry
from moldau.broker.coordinators.share_coordinator import ShareCoordinator
from moldau.broker.coordinators.share_state_persister import ShareStatePersister
from moldau.broker.coordinators.transaction_verifier import TransactionVerifier
from moldau.broker.coordinators.transactions import TransactionCoordinator
from moldau.broker.metadata.cluster_view import ClusterView, DynamicConfig
from moldau.broker.metadata.producer_ids import ProducerIds
from moldau.broker.metadata.quorum import Quorum
from moldau.broker.metadata.topic_creation import TopicCreation
from moldau.broker.network.client_quotas import ClientQuotas
from moldau.broker.network.connection_resources import Transcoder
from moldau.broker.network.memory import ReplyMemory, RequestMemory
from moldau.broker.purgatory.purgatory import Purgatory
from moldau.broker.replicas.in_sync_changes import InSyncChanges
from moldau.broker.replicas.local_logs import LocalLogs
from moldau.broker.replicas.replicas import Replicas
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.flusher import Flusher
from moldau.broker.runtime.tasks import Spawn
from moldau.broker.share_partitions.registry import SharePartitionRegistry
from moldau.protocol.late_dataclass import dataclass
from moldau.replication.fetch_plan import FetchPlanner
from moldau.replication.fetch_session import FetchSessions
from moldau.replication.share.sessions import ShareSessions
from moldau.security.quotas.sampled_rate import QuotaWindows

if TYPE_CHECKING:
    from moldau.broker.tiering.remote_source import RemoteOffsets


@dataclass(frozen=True, slots=True)
class Services:
    """The services of a node, made once in `broker/node/`. They are used only on the event loop."""

    node_id: int
    config: Config
    """The configuration at the start of the node; `settings` has the dynamic changes."""
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
    share_coordinator: ShareCoordinator
    share_persister: ShareStatePersister
    latest_offsets: LatestOffsets
    share_sessions: ShareSessions
    share_partitions: SharePartitionRegistry
    purgatory: Purgatory
    request_memory: RequestMemory
    reply_memory: ReplyMemory
    transcoder: Transcoder
    fetch_sessions: FetchSessions
    fetch_planner: FetchPlanner
    fetch_size_max: int
    """The value of fetch.max.bytes."""
    remote_offsets: RemoteOffsets | None
    """Looks up offsets in remote storage; None if tiered storage is off."""
    large_batches: LargeBatches
    large_metadata: LargeMetadata
    long_requests: LongRequests
    told_versions: dict[tuple[str, bool], tuple[object, object]] = field(default_factory=dict)
    """The last response of ApiVersions by listener, with the values from which it was made. The key also says whether
    the response has features whose lowest level is 0."""
    quotas: ClientQuotas = field(default_factory=lambda: ClientQuotas(QuotaWindows()))
    lag_history: LagHistory = field(default_factory=LagHistory)
    """The lags, in the last hour, of the groups that this broker coordinates."""
    node_status: NodeStatus = field(default_factory=NodeStatus)
    has_authorizer: bool = False
    """Whether an authorizer decides what clients may do."""
