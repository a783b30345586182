"""The parts of a node from which its metrics are collected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moldau.broker.config.config import Config
    from moldau.broker.coordinators.composition import BrokerCoordinators
    from moldau.broker.metadata.cluster_view import ClusterView
    from moldau.broker.metadata.quorum import Quorum
    from moldau.broker.metrics.readiness import Readiness
    from moldau.broker.network.listener import Listener
    from moldau.broker.network.quotas.address_rates import AddressRates
    from moldau.broker.network.quotas.client_quotas import ClientQuotas
    from moldau.broker.network.reply_memory import ReplyMemory
    from moldau.broker.network.request_memory import RequestMemory
    from moldau.broker.network.request_times import RequestClock
    from moldau.broker.purgatory.purgatory import Purgatory
    from moldau.broker.replicas.damaged_replicas import DamagedReplicas
    from moldau.broker.replicas.in_sync_changes import InSyncChanges
    from moldau.broker.replicas.local_logs import LocalLogs
    from moldau.broker.replicas.log_cleaner import LogCleaner
    from moldau.broker.replicas.log_jobs import LogJobs
    from moldau.broker.replicas.replicas import Replicas
    from moldau.broker.replicas.replication_throttles import ReplicationThrottles
    from moldau.broker.requests.large_batches import LargeBatches
    from moldau.broker.runtime.environment import Environment
    from moldau.broker.runtime.flusher import Flusher
    from moldau.broker.tiering.tiering import Tiering


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
    readiness: Readiness
