"""The parts of a node that metrics and probes read, and the node's readiness."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

from moldau.protocol.late_dataclass import dataclass

if TYPE_CHECKING:
    from moldau.broker.apis.large import LargeBatches
    from moldau.broker.config.config import Config
    from moldau.broker.coordinators.composition import BrokerCoordinators
    from moldau.broker.metadata.cluster_view import ClusterView
    from moldau.broker.metadata.quorum import Quorum
    from moldau.broker.metadata.registration import Registration
    from moldau.broker.network.client_quotas import ClientQuotas
    from moldau.broker.network.connection_quota import AddressRates
    from moldau.broker.network.listener import Listener
    from moldau.broker.network.memory import ReplyMemory, RequestMemory
    from moldau.broker.network.request_times import RequestClock
    from moldau.broker.network.turns import TurnScheduler
    from moldau.broker.purgatory.purgatory import Purgatory
    from moldau.broker.replicas.damaged_replicas import DamagedReplicas
    from moldau.broker.replicas.in_sync_changes import InSyncChanges
    from moldau.broker.replicas.local_logs import LocalLogs
    from moldau.broker.replicas.log_cleaner import LogCleaner
    from moldau.broker.replicas.log_jobs import LogJobs
    from moldau.broker.replicas.metadata_applier import ReplicationThrottles
    from moldau.broker.replicas.replicas import Replicas
    from moldau.broker.runtime.environment import Environment
    from moldau.broker.runtime.flusher import Flusher
    from moldau.broker.share_partitions.registry import SharePartitionRegistry
    from moldau.broker.tiering.tiering import Tiering
    from moldau.replication.share.sessions import ShareSessions


class NodeStage(IntEnum):
    """A stage of a node from its start to its stop. The value is that of Kafka's metric BrokerState."""

    STARTING = 1
    RUNNING = 3
    STOPPING = 7


class Readiness:
    """The readiness of a node, as the probe /readyz reports it."""

    def __init__(self, config: Config, quorum: Quorum, registration: Registration, logs: LocalLogs) -> None:
        self.stage = NodeStage.STARTING
        self._is_broker = config.is_broker
        self._quorum = quorum
        self._registration = registration
        self._logs = logs

    def enter(self, stage: NodeStage) -> None:
        """Note that the node is in this stage now."""
        self.stage = stage

    def not_ready(self) -> list[str]:
        """The reasons why this node does not serve clients; empty if it does."""
        if self.stage is not NodeStage.RUNNING:
            return [f"the node is {self.stage.name.lower()}"]
        reasons = [] if self._quorum.leader_id >= 0 else ["the metadata quorum has no leader"]
        if self._is_broker and self._registration.is_fenced:
            reasons.append("the controller has fenced this broker")
        return reasons

    def impairments(self) -> list[str]:
        """The problems of the log directories of a broker that serves clients, as one line each."""
        offline = [f"log directory {path} is offline: {why}" for path, why in self._logs.offline.items()]
        return offline + [f"log directory {path} is full" for path in self._logs.full_disks.full]


@dataclass(frozen=True, slots=True)
class Observed:
    """The parts of a node that have counts for metrics. Collecting metrics only reads them."""

    config: Config
    environment: Environment
    cluster: ClusterView
    quorum: Quorum
    logs: LocalLogs
    log_jobs: LogJobs
    cleaner: LogCleaner
    tiering: Tiering | None
    """Tiered storage; None if it is off."""
    replicas: Replicas
    flusher: Flusher
    throttles: ReplicationThrottles
    client_quotas: ClientQuotas
    address_rates: AddressRates
    in_sync_changes: InSyncChanges
    damaged: DamagedReplicas
    coordinators: BrokerCoordinators
    share_sessions: ShareSessions
    share_partitions: SharePartitionRegistry
    purgatory: Purgatory
    listeners: Sequence[Listener]
    request_memory: RequestMemory
    reply_memory: ReplyMemory
    large_batches: LargeBatches
    clock: RequestClock
    turns: TurnScheduler
    readiness: Readiness
