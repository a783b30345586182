"""Storms of small requests: many connections with many requests in a row, before a login, without rights and with, of
each the same: an honest produce and an honest fetch beside are served in time, and the broker is not fenced.
"""

from __future__ import annotations

import time
from statistics import quantiles
from typing import NamedTuple

from bench.frames import FETCH_VERSION, request_frame
from bench.pinger import Pinger
from bench.processes import memory
from moldau.broker.runtime.heap import CHECK_INTERVAL_MS
from moldau.protocol.messages.describe_cluster import DescribeClusterRequest
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from moldau.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.limits.lists import USER
from tests.limits.stage import HONEST, QUESTION, Stage
from tests.limits.storm import Storm

STORM_S = 15.0
BASELINE_S = 3.0
P99_MS_MAX = 50.0
"""How much the p99 of the honest requests may rise above that of an idle node."""
SLOWEST_MS_MAX = 1_000.0
GROWN_MB_MAX = 64.0
HEAP_PATIENCE_S = 3 * CHECK_INTERVAL_MS / 1000
IN_A_ROW = 200
TOPICS = 2_000
CLUSTER = request_frame(DescribeClusterRequest(include_cluster_authorized_operations=True), 1)
LOGIN = request_frame(SaslHandshakeRequest(mechanism="PLAIN"), 1) + request_frame(
    SaslAuthenticateRequest(auth_bytes=f"\0{USER}\0{USER}-secret".encode()), 2
)


class Kind(NamedTuple):
    """A storm: its connections, and what each of them sends."""

    name: str
    connections: int
    frame: bytes
    in_a_row: int = IN_A_ROW
    """0: one frame byte by byte, which does not end."""
    at_login: bool = False
    """At the listener with SASL."""
    before: bytes = b""


def _offsets() -> bytes:
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    topics = [ListOffsetsTopic(name=HONEST, partitions=[partition])]
    return request_frame(ListOffsetsRequest(replica_id=-1, topics=topics), 7)


KINDS = (
    Kind("ApiVersions", 20, QUESTION),
    Kind("ApiVersions", 300, QUESTION),
    Kind("ApiVersions", 1_000, QUESTION),
    Kind("ApiVersions before login", 1_000, QUESTION, at_login=True),
    Kind("a request that does not end", 1_000, b"\0\1\0\0" + bytes(1 << 16), 0),
    Kind("FindCoordinator", 300, request_frame(FindCoordinatorRequest(coordinator_keys=["x"], key_type=0), 4)),
    Kind("ListOffsets", 300, _offsets()),
    Kind("DescribeCluster without rights", 300, CLUSTER, at_login=True, before=LOGIN),
    Kind("ListOffsets without rights", 300, _offsets(), at_login=True, before=LOGIN),
)
SHORT = Kind("ApiVersions", 100, QUESTION)
ALL_TOPICS = Kind("Metadata of all topics", 100, request_frame(MetadataRequest(topics=None), 12))


def small_requests(stage: Stage) -> None:
    """Each kind of storm for a while."""
    _sit_out(stage, KINDS, STORM_S)


def a_short_storm(stage: Stage) -> None:
    """A hundred connections for a moment: nobody waits long, though other trials use the machine."""
    first = stage.honest_count
    storm = Storm(stage.port, SHORT.connections, SHORT.frame * SHORT.in_a_row, SHORT.in_a_row)
    time.sleep(BASELINE_S)
    stage.check(storm.end().requests > 1_000, "the storm is not answered")
    stage.await_honest(first + 10)
    slowest_ms = stage.honest_slowest_ms(first)
    stage.check(slowest_ms < SLOWEST_MS_MAX, f"an honest produce waited for {slowest_ms:.0f} ms")
    stage.check(stage.metric("kafka_controller_kafkacontroller_fencedbrokercount") == 0, "the broker is fenced")


def metadata_of_all_topics(stage: Stage) -> None:
    """Each answer has two thousand topics."""
    for number in range(TOPICS):
        stage.check(stage.create(f"many-{number}") == 0, "a topic is not created")
    _sit_out(stage, (ALL_TOPICS,), STORM_S)


def _sit_out(stage: Stage, kinds: tuple[Kind, ...], seconds: float) -> None:
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)
    topics = [FetchTopic(topic=HONEST, partitions=[part])]
    fetch = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1_000, topics=topics)
    fetches = Pinger(stage.port, request_frame(fetch, FETCH_VERSION), 0.01)
    time.sleep(BASELINE_S)
    bar_ms = P99_MS_MAX + max(stage.honest_p99_ms(0), fetches.p99_ms)
    idle_mb = memory(stage.node.pid).resident_mb
    failures = []
    for kind in kinds:
        produced, fetched = stage.honest_count, len(fetches.latencies_ms)
        port = stage.login_port if kind.at_login else stage.port
        storm = Storm(port, kind.connections, kind.frame * max(kind.in_a_row, 1), kind.in_a_row, before=kind.before)
        time.sleep(seconds)
        last = stage.honest_count, len(fetches.latencies_ms)
        counts = storm.end()
        # Whoever waits when the storm ends is among those who waited.
        stage.await_honest(last[0] + 1)
        stage.eventually("the honest fetch is answered", lambda last=last: len(fetches.latencies_ms) > last[1])  # type: ignore[misc]
        name = f"{kind.name} x {kind.connections}"
        for what, latencies_ms in (
            ("produce", stage.honest_latencies_ms(produced, last[0] + 1)),
            ("fetch", fetches.latencies_ms[fetched : last[1] + 1]),
        ):
            p99_ms, slowest_ms = quantiles(latencies_ms, n=100)[98], max(latencies_ms)
            print(
                f"  {name:42} {what:7} p99 {p99_ms:6.1f} ms, slowest {slowest_ms:6.1f}, {len(latencies_ms)}", flush=True
            )
            if p99_ms > bar_ms or slowest_ms > SLOWEST_MS_MAX:
                failures.append(f"{name}: {what} p99 {p99_ms:.0f}, slowest {slowest_ms:.0f} ms")
        print(f"  {name:42} {counts.requests / seconds:9.0f} answers a second", flush=True)
        stage.check(stage.metric("kafka_controller_kafkacontroller_fencedbrokercount") == 0, f"fenced by {name}")
        check_memory(stage, idle_mb, name)
        stage.check(counts.requests > 0 or not kind.in_a_row, f"{name} is not answered")
    fetches.end()
    stage.check(not failures, f"bar {bar_ms:.0f} ms: {'. '.join(failures)}")


def check_memory(stage: Stage, idle_mb: float, name: str) -> None:
    """What an attack leaves, once the node had the time to give its heap back."""
    deadline = time.monotonic() + HEAP_PATIENCE_S
    while (grown_mb := memory(stage.node.pid).resident_mb - idle_mb) > GROWN_MB_MAX and time.monotonic() < deadline:
        time.sleep(0.5)
    print(f"  {name:42} {grown_mb:+.0f} MB", flush=True)
    stage.check(grown_mb <= GROWN_MB_MAX, f"{name} leaves {grown_mb:.0f} MB")
