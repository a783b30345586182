"""Metrics and health of one node over HTTP: put together, started before all else, stopped after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.config.http_address import HttpAddress
from broker.metrics.cluster import collect_cluster, collect_flushes, collect_groups
from broker.metrics.exposition import CONTENT_TYPE, Page
from broker.metrics.http_server import Answer, HttpServer, plain
from broker.metrics.limits import collect_limits
from broker.metrics.partitions import collect_partitions
from broker.metrics.request_meter import RequestMeter
from broker.metrics.stall import StallWatch
from broker.metrics.traffic import collect_connections, collect_requests
from broker.node.stage import Stage

if TYPE_CHECKING:
    from broker.network.listener import Listener
    from broker.node.node import Broker


class Metrics:
    """Gathers when it is asked; between scrapes it costs what the timer of the stall costs."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        clock_ns = broker.environment.precise_ns
        self._clock_ns = clock_ns
        self._meters: dict[str, RequestMeter] = {}
        self._stall = StallWatch(broker.loop, clock_ns)
        self._process = broker.environment.process()
        self._began_ns = clock_ns()
        self._scrape_ns = 0
        self._series_max = broker.config.integer("moldau.metrics.series.max")
        paths = {"/metrics": self.metrics, "/healthz": self.health, "/readyz": self.readiness}
        self._server = HttpServer(broker.loop, paths, broker.tasks.spawn)

    async def start(self, address: HttpAddress) -> None:
        """Serve. Raises OSError."""
        await self._server.start(address)
        self._stall.start()
        if self._process is not None:
            self._process.start()

    def stop(self) -> None:
        self._server.stop()
        self._stall.stop()
        if self._process is not None:
            self._process.stop()

    def watch(self, listener: Listener) -> None:
        """Measure the requests of a listener that has not served any yet."""
        for route in listener.routes.values():
            route.meter = self._meters.setdefault(route.api.name, RequestMeter(self._clock_ns))

    # The answers

    async def health(self) -> Answer:
        """The process lives and its loop turns: else nobody would have answered."""
        return plain(200, "ok")

    async def readiness(self) -> Answer:
        """Whether clients are served, and what they still wait for."""
        missing = self._broker.not_ready()
        if missing:
            return plain(503, "\n".join(missing))
        return plain(200, "\n".join(["ok", *self._broker.impaired()]))

    async def metrics(self) -> Answer:
        began_ns = self._clock_ns()
        page = Page()
        if self._process is not None:
            self._process.collect(page, await self._broker.environment.offload(self._process.read))
        await self._collect(page)
        self._scrape_ns = self._clock_ns() - began_ns
        return Answer(200, CONTENT_TYPE, page.text())

    async def _collect(self, page: Page) -> None:
        broker = self._broker
        page.add("kafka_server_kafkaserver_brokerstate", broker.stage)
        page.add("moldau_uptime_seconds", (self._clock_ns() - self._began_ns) / 1e9)
        page.add("moldau_scrape_seconds", self._scrape_ns / 1e9)
        self._stall.collect(page)
        collect_requests(page, broker.listeners, self._meters)
        collect_connections(page, broker.listeners)
        collect_limits(page, broker)
        collect_flushes(page, broker.flusher, broker.quorum.flusher)
        left_out = await collect_partitions(page, broker, self._series_max)
        page.add("moldau_series_left_out", left_out)
        collect_groups(page, broker)
        if broker.stage is Stage.RUNNING:
            await collect_cluster(page, broker)
