"""Serves the metrics and the health of one node over HTTP. It starts before all other parts of the node, and stops
after them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from moldau import __version__
from moldau.broker.config.listeners import HttpAddress, LocalAddress
from moldau.broker.http.server import Handler, HttpRequest, HttpResponse, HttpServer, Resources, plain_response
from moldau.broker.metrics.cluster import (
    collect_cluster,
    collect_flushes,
    collect_groups,
    collect_sharing,
    collect_transactions,
)
from moldau.broker.metrics.exposition import CONTENT_TYPE, Page
from moldau.broker.metrics.machine import Processes, label_by_broker, sum_pages
from moldau.broker.metrics.observed import NodeStage, Observed
from moldau.broker.metrics.process import ProcessMetrics, StallWatch, collect_longest_step
from moldau.broker.metrics.storage import collect_cleaner, collect_partitions, collect_tiering
from moldau.broker.metrics.traffic import (
    collect_connections,
    collect_delayed_operations,
    collect_limits,
    collect_quotas,
    collect_requests,
    counting_encoder,
)
from moldau.broker.runtime.tasks import Spawn

if TYPE_CHECKING:
    from moldau.broker.metrics.otlp import Telemetry

log = logging.getLogger("moldau.broker")


class LagExporter(Protocol):
    """Adds the consumer lag of groups to a page."""

    def start(self) -> None: ...

    async def collect(self, page: Page) -> int:
        """Add the consumer lag of groups to a page. Returns the number of groups and partitions without series of their
        own.
        """


class Metrics:
    """Serves and exports the metrics of a node. It collects them at each scrape; between scrapes only the timer that
    measures stalls runs.
    """

    def __init__(
        self,
        node: Observed,
        address: HttpAddress | LocalAddress | None,
        loop: asyncio.AbstractEventLoop,
        spawn: Spawn,
        further: Resources | None = None,
        body_size_max: int = 0,
        guard: Callable[[Handler], Handler] | None = None,
        processes: Processes | None = None,
        lags: LagExporter | None = None,
    ) -> None:
        """`address`: where metrics and health are served; None if the metrics are only sent to a collector. `further`:
        other resources of the HTTP server. `body_size_max`: the maximum size (bytes) of a request body. `guard` wraps
        the handler of the metrics, which reveal more than health does. `processes`: the other processes of this
        machine, for which this node answers too. `lags`: the lag exporter, on a broker.
        """
        self._lags = lags
        self._processes = processes
        self._node = node
        self._address = address
        clock_ns = node.environment.precise_ns
        self._clock_ns = clock_ns
        self._stall = StallWatch(loop, clock_ns)
        process = node.environment.process()
        self._process = None if process is None else ProcessMetrics(process)
        self._began_ns = clock_ns()
        self._scrape_ns = 0
        self._series_max = node.config.integer("moldau.metrics.series.max")
        guarded = guard or (lambda handler: handler)
        pages: dict[str, Handler] = {
            "/metrics": guarded(self.metrics),
            "/healthz": self.health,
            "/readyz": self.readiness,
        }
        if processes is not None:
            pages["/metrics/brokers"] = guarded(self.metrics_by_broker)
        for listener in node.listeners:
            for route in listener.routes.values():
                route.wrap_encoders(counting_encoder)
        resources: Resources = {path: {"GET": page} for path, page in pages.items()}
        self._server = HttpServer(loop, {**resources, **(further or {})}, spawn, body_size_max=body_size_max)

        self.telemetry = self._compose_telemetry(spawn)

    def _compose_telemetry(self, spawn: Spawn) -> Telemetry | None:
        """The part that sends metrics and traces to a collector; None if moldau.opentelemetry.endpoint is not set."""
        node = self._node
        endpoint = node.config.text_or_none("moldau.opentelemetry.endpoint")
        if not endpoint:
            return None
        from moldau.broker.metrics.otlp import Telemetry

        attributes = {
            "service.name": "moldau",
            "service.version": __version__,
            "service.instance.id": str(node.config.node_id),
        }
        interval_ms = node.config.integer("moldau.opentelemetry.interval.ms")
        return Telemetry(node.environment, spawn, self._collect_all, endpoint, interval_ms, attributes)

    async def start(self) -> None:
        """Begin to serve and to export. Raises OSError."""
        if isinstance(self._address, LocalAddress):
            await self._server.start_local(self._address)
        elif self._address is not None:
            await self._server.start(self._address, "moldau.http.listener")
            log.info("metrics and health on http://%s:%d", self._address.host or "*", self._address.port)
        if self.telemetry is not None:
            self._node.clock.slow.told = self.telemetry.note
            self.telemetry.start()
        self._stall.start()
        if self._lags is not None:
            self._lags.start()
        if self._process is not None:
            self._process.start()

    def stop(self) -> None:
        self._server.stop()
        self._stall.stop()
        if self._process is not None:
            self._process.stop()

    # The responses

    async def health(self, request: HttpRequest) -> HttpResponse:
        """Answer the liveness probe: any answer shows that the event loop runs."""
        return plain_response(200, "ok")

    async def readiness(self, request: HttpRequest) -> HttpResponse:
        """Answer the readiness probe: 200 if clients are served, otherwise 503 with the reasons."""
        missing = self._node.readiness.not_ready()
        if self._processes is not None:
            missing += await self._processes.not_ready()
        if missing:
            return plain_response(503, "\n".join(missing))
        return plain_response(200, "\n".join(["ok", *self._node.readiness.impairments()]))

    async def metrics(self, request: HttpRequest) -> HttpResponse:
        """Answer a scrape with the metrics of this node, or of all processes of its machine if it answers for them."""
        if self._processes is not None:
            return await self._of_machine(self._processes, sum_pages)
        return HttpResponse(200, CONTENT_TYPE, await self._own_page())

    async def metrics_by_broker(self, request: HttpRequest) -> HttpResponse:
        """Answer a scrape with the metrics of each process of the machine, told apart by the label `broker`."""
        assert self._processes is not None, "the resource is there for the first of several processes"
        return await self._of_machine(self._processes, label_by_broker)

    async def _of_machine(self, processes: Processes, merge: Callable[[Mapping[int, str | None]], str]) -> HttpResponse:
        pages = await processes.pages(await self._own_page())
        return HttpResponse(200, CONTENT_TYPE, await self._node.environment.offload(lambda: merge(pages)))

    async def _own_page(self) -> str:
        page = Page()
        await self._collect_all(page)
        return page.text()

    async def _collect_all(self, page: Page) -> None:
        began_ns = self._clock_ns()
        if self._process is not None:
            self._process.collect(page, await self._node.environment.offload(self._process.read))
        await self._collect(page)
        self._scrape_ns = self._clock_ns() - began_ns

    async def _collect(self, page: Page) -> None:
        node = self._node
        page.add("kafka_server_kafkaserver_brokerstate", node.readiness.stage)
        page.add("moldau_uptime_seconds", (self._clock_ns() - self._began_ns) / 1e9)
        page.add("moldau_scrape_seconds", self._scrape_ns / 1e9)
        self._stall.collect(page)
        collect_longest_step(page, node.clock.steps)
        collect_requests(page, node.listeners)
        page.add("moldau_slow_requests_total", node.clock.slow.count)
        collect_connections(page, node.listeners)
        collect_delayed_operations(page, node.purgatory.sizes)
        collect_limits(page, node)
        left_out = await collect_quotas(page, node, self._series_max)
        collect_flushes(page, node.flusher, node.quorum.flusher)
        left_out += await collect_partitions(page, node, self._series_max)
        collect_cleaner(page, node.cleaner, node.config.log_dirs, node.environment.monotonic_ms())
        if node.tiering is not None:
            await collect_tiering(page, node.tiering, node.environment.monotonic_ms(), self._series_max)
        collect_groups(page, node)
        left_out += collect_sharing(page, node, self._series_max)
        if self._lags is not None and node.readiness.stage is NodeStage.RUNNING:
            left_out += await self._lags.collect(page)
        page.add("moldau_series_left_out", left_out)
        collect_transactions(page, node)
        if node.readiness.stage is NodeStage.RUNNING:
            await collect_cluster(page, node)
