"""The parts of a node from which its metrics are collected."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.config.config import Config
    from broker.coordinators.composition import BrokerCoordinators
    from broker.metadata.cluster_view import ClusterView
    from broker.metadata.quorum import Quorum
    from broker.network.listener import Listener
    from broker.network.quotas.address_rates import AddressRates
    from broker.network.quotas.client_quotas import ClientQuotas
    from broker.network.reply_memory import ReplyMemory
    from broker.network.request_memory import RequestMemory
    from broker.network.request_times import RequestClock
    from broker.purgatory.purgatory import Purgatory
    from broker.replicas.damaged_replicas import DamagedReplicas
    from broker.replicas.in_sync_changes import InSyncChanges
    from broker.replicas.local_logs import LocalLogs
    from broker.replicas.log_cleaner import LogCleaner
    from broker.replicas.log_jobs import LogJobs
    from broker.replicas.replicas import Replicas
    from broker.replicas.replication_throttles import ReplicationThrottles
    from broker.requests.large_batches import LargeBatches
    from broker.runtime.environment import Environment
    from broker.runtime.flusher import Flusher
    from broker.runtime.stage import Stage
    from broker.tiering.tiering import Tiering


@dataclass(frozen=True, slots=True)
class Observed:
    """The parts of a node that have counts for metrics. Reading the counts changes nothing."""

    config: Config
    environment: Environment
    cluster: ClusterView
    quorum: Quorum
    logs: LocalLogs
    log_jobs: LogJobs
    cleaner: LogCleaner
    tiering: Tiering | None
    """None where tiered storage is off."""
    replicas: Replicas
    flusher: Flusher
    throttles: ReplicationThrottles
    client_quotas: ClientQuotas
    address_rates: AddressRates
    in_sync_changes: InSyncChanges
    damaged: DamagedReplicas
    coordinators: BrokerCoordinators
    purgatory: Purgatory
    listeners: Sequence[Listener]
    request_memory: RequestMemory
    reply_memory: ReplyMemory
    large_batches: LargeBatches
    clock: RequestClock
    stage: Callable[[], Stage]
    not_ready: Callable[[], list[str]]
    """Why clients are not served; empty where they are served."""
    impaired: Callable[[], list[str]]
    """The problems of a node that serves clients."""
