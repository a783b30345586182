"""The latency that a client measures beside the one in the broker's metrics, for the same requests.

Each produce waits until its records are on disk (`log.flush.interval.messages=1`), so that nearly all of its time
passes in the broker. The client's p99 is exact. The broker's is what Prometheus computes from TotalTimeMs: the
difference of the histograms after and before the run, interpolated linearly between two bounds.
"""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Mapping
from typing import Final, NamedTuple

from bench.contenders import Contender
from bench.figures import OURS, Figure
from bench.groups import RunForm
from bench.start import compile_packages
from bench.subjects import Bench, RunningBroker
from bench.workloads import SMALL

NAME: Final = "p99 of produces that wait for the disk"
WORKLOAD: Final = SMALL._replace(in_flight=1)
REQUESTS: Final = 8_000
REQUESTS_QUICK: Final = 2_000
WARM_UP_REQUESTS: Final = 500
BUCKET: Final = re.compile(r'kafka_network_requestmetrics_totaltimems_bucket\{request="Produce",le="([^"]+)"\} (\d+)')

Buckets = Mapping[float, int]
"""The number of requests up to each bound (ms)."""


class ComparedLatency(NamedTuple):
    """The p99 (ms) of the same requests, as the client and the broker measured it."""

    client_ms: float
    broker_ms: float

    @property
    def difference_percent(self) -> float:
        return abs(self.broker_ms / self.client_ms - 1) * 100


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    compile_packages()
    port = bench.free_pair()
    settings = ("log.flush.interval.messages=1", f"moldau.http.listener=http://127.0.0.1:{port}")
    server = bench.new_server(OURS, extra=settings)
    server.format()
    requests = REQUESTS_QUICK if form.is_quick else REQUESTS
    runs = []
    with RunningBroker(server) as running:
        contender = Contender(running)
        contender.run_load(WORKLOAD, WARM_UP_REQUESTS)
        for _ in range(form.rounds):
            runs.append(_compared(contender, port, requests))
            print(
                f"  the client's p99 {runs[-1].client_ms:.2f} ms, the broker's {runs[-1].broker_ms:.2f} ms", flush=True
            )
    return [
        Figure(f"{NAME}: the client's", "ms", {OURS: [run.client_ms for run in runs]}),
        Figure(f"{NAME}: the broker's", "ms", {OURS: [run.broker_ms for run in runs]}),
        Figure(f"{NAME}: the broker's, off the client's", "%", {OURS: [run.difference_percent for run in runs]}),
    ]


def _compared(contender: Contender, port: int, requests: int) -> ComparedLatency:
    before = produce_buckets(port)
    outcome = contender.run_load(WORKLOAD, requests).outcome
    after = produce_buckets(port)
    buckets = {bound: count - before.get(bound, 0) for bound, count in after.items()}
    return ComparedLatency(outcome.latency_ms(0.99), quantile(buckets, 0.99))


def produce_buckets(port: int) -> Buckets:
    """The histogram of Produce's TotalTimeMs, from a scrape of the metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        page = answer.read().decode()
    return {float(bound.replace("+Inf", "inf")): int(count) for bound, count in BUCKET.findall(page)}


def quantile(buckets: Buckets, share: float) -> float:
    """Compute a quantile as `histogram_quantile` of Prometheus does."""
    bounds = sorted(buckets)
    wanted = share * buckets[bounds[-1]]
    lower, below = 0.0, 0
    for bound in bounds:
        if buckets[bound] >= wanted and bound != float("inf"):
            return lower + (bound - lower) * (wanted - below) / (buckets[bound] - below)
        if bound != float("inf"):
            lower, below = bound, buckets[bound]
    return lower
