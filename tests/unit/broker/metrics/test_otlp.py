"""The export by OpenTelemetry, received by a collector of the standard library."""

from __future__ import annotations

import asyncio
import gzip
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from moldau.broker.metrics.catalogue import metrics
from moldau.broker.metrics.exposition import Page
from moldau.broker.metrics.otlp import Samples, Sender, Trace
from moldau.broker.network.slow_requests import STAGES
from tests.support.console_client import HTTP_PORT
from tests.support.node import Node, batch, serve_and
from tests.support.transactional_producer import SETTINGS as TRANSACTIONS
from tests.support.transactional_producer import started
from tests.unit.broker.exporter.test_exporter import commit

collector_pb2 = pytest.importorskip("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")
SETTINGS: dict[str, Any] = {
    "moldau_opentelemetry_endpoint": "http://collector:4318",
    "moldau_opentelemetry_interval_ms": 10_000,
}
SERVER = 2
"""The kind of a span whose work a client has asked for."""


class Collector(HTTPServer):
    """Keeps the bodies of requests by their paths."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Receiver)
        self.bodies: dict[str, list[bytes]] = {"/v1/metrics": [], "/v1/traces": []}
        self.status = 200

    @property
    def sender(self) -> Sender:
        return Sender(f"http://127.0.0.1:{self.server_port}", {"service.name": "moldau"}, 0)


class Recorded:
    """Keeps what a node sends: no socket is used inside the simulation."""

    def __init__(self) -> None:
        self.metrics: list[tuple[Any, int]] = []
        self.traces: list[Trace] = []
        self.problem = ""

    def send_metrics(self, samples: Any, now_ns: int) -> str:
        self.metrics.append((samples, now_ns))
        return self.problem

    def send_traces(self, traces: list[Trace]) -> str:
        self.traces += traces
        return self.problem

    def record(self, node: Node) -> None:
        metrics = node.broker.metrics
        assert metrics is not None and metrics.telemetry is not None
        metrics.telemetry.sender = self  # type: ignore[assignment]


class Receiver(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.server.bodies[self.path].append(body)
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def test_metrics_arrive_with_their_kinds_and_labels(collector: Collector) -> None:
    recorded = Recorded()

    async def story(node: Node) -> None:
        client = await node.connect()
        recorded.record(node)
        await client.create("orders")
        await client.produce("orders", batch("a", "b"))
        await asyncio.sleep(25)

    serve_and(story, **SETTINGS)
    assert len(recorded.metrics) == 2
    assert collector.sender.send_metrics(*recorded.metrics[-1]) == ""
    (body,) = collector.bodies["/v1/metrics"]
    (resource,) = collector_pb2.ExportMetricsServiceRequest.FromString(body).resource_metrics
    assert resource.resource.attributes[0].value.string_value == "moldau"
    (scope,) = resource.scope_metrics
    found = {each.name: each for each in scope.metrics}
    assert set(found) <= set(metrics())
    written = found["kafka_server_brokertopicmetrics_messagesin_total"]
    assert written.WhichOneof("data") == "sum" and written.sum.is_monotonic
    of_topics = {
        each.attributes[0].value.string_value: each.as_double for each in written.sum.data_points if each.attributes
    }
    assert of_topics["orders"] == 2
    times = found["kafka_network_requestmetrics_totaltimems"]
    assert times.WhichOneof("data") == "histogram"
    produced = next(each for each in times.histogram.data_points if each.attributes[0].value.string_value == "Produce")
    assert produced.count == 1 == sum(produced.bucket_counts)
    assert len(produced.bucket_counts) == len(produced.explicit_bounds) + 1
    assert found["kafka_server_kafkaserver_brokerstate"].WhichOneof("data") == "gauge"


def test_the_lag_of_a_group_is_exported() -> None:
    recorded = Recorded()

    async def story(node: Node) -> None:
        producer = await started(node)
        recorded.record(node)
        await producer.client.produce("t", batch("a", "b", "c"))
        await commit(producer.client, "billing", 1)
        await asyncio.sleep(22)

    serve_and(story, moldau_http_listener=f"http://:{HTTP_PORT}", **TRANSACTIONS, **SETTINGS)
    samples, _ = recorded.metrics[-1]
    lags = {name: (labels, value) for name, labels, value in samples if name.startswith("kafka_consumergroup_group_")}
    assert lags["kafka_consumergroup_group_sum_lag"] == ((("group", "billing"), ("kind", "classic")), 2)
    assert lags["kafka_consumergroup_group_lag"] == ((("group", "billing"), ("topic", "t"), ("partition", "0")), 2)


def test_an_export_adds_every_sample_that_a_page_adds() -> None:
    """`add_chosen` calls `add`."""
    adding = {name for name in vars(Page) if name.startswith("add")} - {"add_chosen"}
    assert adding <= vars(Samples).keys()


def test_a_slow_request_is_a_trace_of_its_stages(collector: Collector) -> None:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    recorded = Recorded()

    async def story(node: Node) -> None:
        client = await node.connect(client_id="till")
        recorded.record(node)
        await client.create("orders")
        await asyncio.sleep(12)

    serve_and(story, **SETTINGS, moldau_slow_request_ms=0)
    assert collector.sender.send_traces(recorded.traces) == ""
    spans = [
        span
        for body in collector.bodies["/v1/traces"]
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    root = next(each for each in spans if each.name == "CreateTopics")
    assert root.kind == SERVER
    assert {each.key: each.value.string_value for each in root.attributes}["client_id"] == "till"
    stages = [each for each in spans if each.trace_id == root.trace_id and each is not root]
    assert [each.name for each in stages] == list(STAGES)
    assert all(each.parent_span_id == root.span_id for each in stages)
    assert stages[0].start_time_unix_nano == root.start_time_unix_nano
    assert stages[-1].end_time_unix_nano == root.end_time_unix_nano
    assert len({each.span_id for each in spans}) == len(spans)


def test_a_collector_that_refuses_is_named_in_the_log(collector: Collector, caplog: pytest.LogCaptureFixture) -> None:
    collector.status = 400
    recorded = Recorded()
    recorded.problem = collector.sender.send_metrics([("moldau_uptime_seconds", (), 1.0)], 1)
    assert recorded.problem == f"http://127.0.0.1:{collector.server_port} takes no metrics"

    async def story(node: Node) -> None:
        await node.connect()
        recorded.record(node)
        await asyncio.sleep(12)

    serve_and(story, **SETTINGS)
    said = [each.getMessage() for each in caplog.records if each.name == "moldau.opentelemetry"]
    assert said == [recorded.problem]


def test_what_a_library_raises_stops_no_broker(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Recorded):
        def send_metrics(self, samples: Any, now_ns: int) -> str:
            super().send_metrics(samples, now_ns)
            raise KeyError("a library")

    failing = Failing()

    async def story(node: Node) -> None:
        client = await node.connect()
        failing.record(node)
        await asyncio.sleep(22)
        assert await client.create("orders")

    serve_and(story, **SETTINGS)
    assert len(failing.metrics) == 2
    assert "nothing is sent" in caplog.text


def test_a_node_without_the_setting_imports_nothing_of_it() -> None:
    code = "import sys, moldau.broker.node.node, moldau.broker.metrics.service\n"
    code += "print([each for each in sys.modules if 'opentelemetry' in each or each.endswith('otlp')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
