"""The metrics of a node, composed of the parts whose values they show."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from moldau.broker.config.http_address import read_address
from moldau.broker.network.request_times import RequestClock
from moldau.broker.network.slow_requests import SlowRequests
from moldau.broker.replicas.local_logs import impaired
from moldau.broker.runtime.loop_steps import LoopSteps

if TYPE_CHECKING:
    from moldau.broker.config.config import Config
    from moldau.broker.metrics.service import Metrics
    from moldau.broker.node.node import Node
    from moldau.broker.runtime.environment import Environment


def request_clock(
    config: Config, environment: Environment, loop: asyncio.AbstractEventLoop, steps: LoopSteps | None
) -> RequestClock:
    """The clock of the requests of a node, with the log of the slow ones. `steps`: those that the loop measures."""
    slow = SlowRequests(loop, config.integer("moldau.slow.request.ms"))
    return RequestClock(environment.precise_ns, slow, LoopSteps() if steps is None else steps)


def compose_metrics(node: Node) -> Metrics | None:
    """The metrics and their HTTP server; None where moldau.http.listener is not set."""
    address = read_address(node.config.text_or_none("moldau.http.listener") or "")
    if address is None:
        return None
    from moldau.broker.metrics.observed import Observed
    from moldau.broker.metrics.service import Metrics

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
        clock=node.clock,
        stage=lambda: node.stage,
        not_ready=node.not_ready,
        impaired=partial(impaired, node.logs),
    )
    return Metrics(observed, address, node.loop, node.tasks.spawn)
