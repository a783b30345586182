"""Sends the metrics of the node, and a trace for each slow request, to an OpenTelemetry collector over OTLP/HTTP.

    every moldau.opentelemetry.interval.ms   collect, as for a scrape ──┐
    every `TRACES_MS`, if there are any      slow requests ─────────────┴──▶ an executor thread encodes and sends

The libraries of the extra `opentelemetry` are imported if moldau.opentelemetry.endpoint is set, in the executor thread.
The span of a request has as its children the stages of `broker/network/request_times.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from moldau import __version__
from moldau.broker.metrics.catalogue import metrics
from moldau.broker.metrics.exposition import BucketedObservations, KeptLabels, Labels, Observations, Page
from moldau.broker.network.slow_requests import SlowRequest
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.tasks import Spawn

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricsData
    from opentelemetry.sdk.trace import ReadableSpan

log = logging.getLogger("moldau.opentelemetry")

TRACES_MS: Final = 5_000
TRACES_MAX: Final = 512
"""The maximum number of slow requests that wait to be sent; beyond it the oldest are dropped."""
TIMEOUT_S: Final = 5
"""The maximum time (seconds) for which an executor thread waits for the collector, including all attempts."""
SCOPE: Final = "moldau"


@dataclass(frozen=True, slots=True)
class Histogram:
    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    """For each bound, the number of observations up to it and above the bound before. The last number is that of
    observations above the last bound.
    """
    count: int
    sum: float


class Samples(Page):
    """The metrics of one export, as values instead of text."""

    def __init__(self) -> None:
        super().__init__()
        self.samples: list[tuple[str, Labels, float | Histogram]] = []

    def add(self, name: str, value: float, labels: Labels = ()) -> None:
        assert name in metrics(), f"{name} is not in the catalogue"
        self.samples.append((name, labels, float(value)))

    def add_labelled(self, name: str, value: float, labels: KeptLabels) -> None:
        self.add(name, value, labels.labels)

    def add_summary(self, name: str, summary: Observations, labels: Labels = ()) -> None:
        self.samples.append((name, labels, Histogram((), (summary.count,), summary.count, summary.sum)))

    def add_histogram(self, name: str, histogram: BucketedObservations, labels: Labels = ()) -> None:
        shown = Histogram(tuple(histogram.bounds), tuple(histogram.counts), histogram.count, histogram.sum)
        self.samples.append((name, labels, shown))


class Trace(NamedTuple):
    """A slow request, with the ids of its trace and its spans."""

    request: SlowRequest
    ended_ns: int
    """The time (ns, wall clock) at which the reply of the request was handed to the kernel."""
    trace_id: int
    span_ids: list[int]
    """The ids of the request's span and of the spans of its stages, in this order."""


class Telemetry:
    """Sends the metrics and traces of one node to a collector. `collect` adds the current metrics to a page."""

    def __init__(
        self,
        environment: Environment,
        spawn: Spawn,
        collect: Callable[[Page], Awaitable[None]],
        endpoint: str,
        interval_ms: int,
        attributes: dict[str, str],
    ) -> None:
        self._environment = environment
        self._spawn = spawn
        self._collect = collect
        self._interval_ms = interval_ms
        self._traces: deque[Trace] = deque(maxlen=TRACES_MAX)
        self._began_ns = environment.wall_ms() * 1_000_000
        self.sender = Sender(endpoint.rstrip("/"), attributes, self._began_ns)

    def start(self) -> None:
        self._spawn(self._send_metrics(), "OpenTelemetry metrics")
        self._spawn(self._send_traces(), "OpenTelemetry traces")

    def note(self, request: SlowRequest) -> None:
        """Keep a slow request until its trace is sent. The log of slow requests calls this, and limits the number of
        calls.
        """
        entropy = self._environment.entropy
        ids = [int.from_bytes(entropy(8)) for _ in range(1 + len(request.stages))]
        ended_ns = self._environment.wall_ms() * 1_000_000
        self._traces.append(Trace(request, ended_ns, int.from_bytes(entropy(16)), ids))

    async def _send_metrics(self) -> None:
        while True:
            await asyncio.sleep(self._interval_ms / 1000)
            page = Samples()
            await self._collect(page)
            now_ns = self._environment.wall_ms() * 1_000_000
            await self._send(partial(self.sender.send_metrics, page.samples, now_ns))

    async def _send_traces(self) -> None:
        while True:
            await asyncio.sleep(TRACES_MS / 1000)
            if self._traces:
                traces = list(self._traces)
                self._traces.clear()
                await self._send(partial(self.sender.send_traces, traces))

    async def _send(self, work: Callable[[], str]) -> None:
        try:
            problem = await self._environment.offload(work)
        except Exception:  # What the libraries raise must not stop the broker, as the failure of a task does.
            log.exception("nothing is sent")
            return
        if problem:
            log.warning("%s", problem)


class Sender:
    """Encodes metrics and traces, and sends them, in an executor thread. At most one call of each method is in
    progress.
    """

    def __init__(self, endpoint: str, attributes: dict[str, str], began_ns: int) -> None:
        self._endpoint = endpoint
        self._attributes = attributes
        self._began_ns = began_ns
        self._metrics: Any = None
        self._spans: Any = None

    def send_metrics(self, samples: list[tuple[str, Labels, float | Histogram]], now_ns: int) -> str:
        """Send the metrics. Returns the problem as text; empty if they were sent."""
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics.export import MetricExportResult

        if self._metrics is None:
            self._metrics = OTLPMetricExporter(endpoint=f"{self._endpoint}/v1/metrics", timeout=TIMEOUT_S)
        sent = self._metrics.export(metrics_data(samples, self._attributes, self._began_ns, now_ns))
        return "" if sent is MetricExportResult.SUCCESS else f"{self._endpoint} takes no metrics"

    def send_traces(self, traces: list[Trace]) -> str:
        """Send traces. Returns the problem as text; empty if they were sent."""
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import SpanExportResult

        if self._spans is None:
            self._spans = OTLPSpanExporter(endpoint=f"{self._endpoint}/v1/traces", timeout=TIMEOUT_S)
        sent = self._spans.export([span for each in traces for span in spans_of(each, self._attributes)])
        return "" if sent is SpanExportResult.SUCCESS else f"{self._endpoint} takes no traces"


def metrics_data(
    samples: list[tuple[str, Labels, float | Histogram]], attributes: dict[str, str], began_ns: int, now_ns: int
) -> MetricsData:
    """Convert samples to the metrics of OpenTelemetry's SDK. Counters are cumulative since `began_ns`, the start of the
    node (ns, wall clock).
    """
    from opentelemetry.sdk.metrics import export
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    points: dict[str, list[Any]] = {}
    for name, labels, value in samples:
        point: Any
        if isinstance(value, Histogram):
            point = export.HistogramDataPoint(
                attributes=dict(labels),
                start_time_unix_nano=began_ns,
                time_unix_nano=now_ns,
                count=value.count,
                sum=value.sum,
                bucket_counts=value.counts,
                explicit_bounds=value.bounds,
                min=None,  # type: ignore[arg-type, unused-ignore]
                max=None,  # type: ignore[arg-type, unused-ignore]
            )
        else:
            point = export.NumberDataPoint(
                attributes=dict(labels), start_time_unix_nano=began_ns, time_unix_nano=now_ns, value=value
            )
        points.setdefault(name, []).append(point)
    made: list[Any] = []
    cumulative = export.AggregationTemporality.CUMULATIVE
    for name, of in points.items():
        declared = metrics()[name]
        data: Any
        if declared.kind in ("histogram", "summary"):
            data = export.Histogram(data_points=of, aggregation_temporality=cumulative)
        elif declared.kind == "counter":
            data = export.Sum(data_points=of, aggregation_temporality=cumulative, is_monotonic=True)
        else:
            data = export.Gauge(data_points=of)
        made.append(export.Metric(name=name, description=declared.meaning, unit="", data=data))
    scope = export.ScopeMetrics(scope=InstrumentationScope(SCOPE, __version__), metrics=made, schema_url="")
    resource = export.ResourceMetrics(resource=Resource(attributes), scope_metrics=[scope], schema_url="")
    return export.MetricsData(resource_metrics=[resource])


def spans_of(trace: Trace, attributes: dict[str, str]) -> list[ReadableSpan]:
    """The spans of a trace: that of the request, then those of its stages."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext, SpanKind, TraceFlags

    request, resource, scope = trace.request, Resource(attributes), InstrumentationScope(SCOPE, __version__)
    contexts = [
        SpanContext(trace.trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
        for span_id in trace.span_ids
    ]
    end_ns = request.stages[-1].end_ns
    begin_ns = request.stages[0].begin_ns

    def wall_ns(stamp_ns: int) -> int:
        return trace.ended_ns - (end_ns - stamp_ns)

    root = ReadableSpan(
        request.api,
        contexts[0],
        resource=resource,
        attributes={name: value if isinstance(value, int) else str(value) for name, value in request.pairs},
        kind=SpanKind.SERVER,
        start_time=wall_ns(begin_ns),
        end_time=trace.ended_ns,
        instrumentation_scope=scope,
    )
    stages = [
        ReadableSpan(
            stage.name,
            context,
            parent=contexts[0],
            resource=resource,
            start_time=wall_ns(stage.begin_ns),
            end_time=wall_ns(stage.end_ns),
            instrumentation_scope=scope,
        )
        for stage, context in zip(request.stages, contexts[1:], strict=True)
    ]
    return [root, *stages]
