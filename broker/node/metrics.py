"""The metrics of a node, composed of the parts whose values they show."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from broker.config.http_address import read_address
from broker.replicas.local_logs import impaired

if TYPE_CHECKING:
    from broker.metrics.service import Metrics
    from broker.node.node import Node


def compose_metrics(node: Node) -> Metrics | None:
    """The metrics and their HTTP server; None where moldau.http.listener is not set."""
    address = read_address(node.config.text_or_none("moldau.http.listener") or "")
    if address is None:
        return None
    from broker.metrics.observed import Observed
    from broker.metrics.service import Metrics

    observed = Observed(
        config=node.config,
        environment=node.environment,
        cluster=node.cluster,
        quorum=node.quorum,
        logs=node.logs,
        log_jobs=node.log_jobs,
        cleaner=node.cleaner,
        tiering=node.tiering,
        replicas=node.replicas,
        flusher=node.flusher,
        throttles=node.throttles,
        client_quotas=node.quotas.clients,
        address_rates=node.quotas.addresses,
        in_sync_changes=node.in_sync_changes,
        damaged=node.damaged,
        coordinators=node.coordinators,
        purgatory=node.purgatory,
        listeners=node.listeners,
        request_memory=node.request_memory,
        reply_memory=node.reply_memory,
        large_batches=node.large_batches,
        stage=lambda: node.stage,
        not_ready=node.not_ready,
        impaired=partial(impaired, node.logs),
    )
    return Metrics(observed, address, node.loop, node.tasks.spawn)
