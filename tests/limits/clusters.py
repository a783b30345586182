"""Storms at each node of a cluster of three: no broker is fenced, and an honest client beside is served in time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import quantiles
from typing import Final

from bench.client import Client
from bench.frames import batch_of, produce_frame, request_frame
from bench.pinger import Pinger
from moldau.kraft.record_frame import decode_record
from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.protocol.record_batch import CONTROL_BIT
from moldau.protocol.record_reader import records_of
from moldau.protocol.records.metadata import BrokerRegistrationChangeRecord, FenceBrokerRecord
from moldau.testing.ports import free_ports
from tests.chaos.cluster import METADATA_TOPIC, NODES, PORTS_EACH, Cluster
from tests.limits.stage import HONEST, QUESTION, Stage
from tests.limits.storm import Storm
from tests.limits.storms import BASELINE_S, IN_A_ROW, P99_MS_MAX

STORM_S: Final = 20.0
CONNECTIONS: Final = 100
"""At each of the three nodes."""
FENCED: Final = 1
KINDS: Final = (("ApiVersions", QUESTION), ("Metadata", request_frame(MetadataRequest(topics=None), 12)))


def storms_at_three_nodes(stage: Stage) -> None:
    """The node of the stage is idle beside."""
    with ExitStack() as held:
        cluster = Cluster(stage.directory / "cluster", free_ports(PORTS_EACH * len(NODES))[0])
        held.callback(cluster.close)
        cluster.start()
        with contextlib.closing(Client(cluster.members[NODES[0]].port)) as client:
            client.auto_create_topic(HONEST)
        stage.eventually("the topic has a leader", lambda: cluster.leader_of(HONEST, 0) in NODES)
        honest = cluster.members[cluster.leader_of(HONEST, 0)]
        with contextlib.closing(Client(honest.port)) as client:
            client.produce_with_retries(HONEST)
        frame = produce_frame(HONEST, batch_of([100], time.time_ns() // 1_000_000))
        pinger = Pinger(honest.port, frame, 0.01)
        held.callback(pinger.end)
        time.sleep(BASELINE_S)
        bar_ms = P99_MS_MAX + pinger.p99_ms
        known = sorted(_fenced(honest.data))
        failures = []
        for name, data in KINDS:
            first = len(pinger.latencies_ms)
            storms = [Storm(member.port, CONNECTIONS, data * IN_A_ROW, IN_A_ROW) for member in cluster.members.values()]
            time.sleep(STORM_S)
            answered = sum(storm.end().requests for storm in storms)
            last = len(pinger.latencies_ms)
            stage.eventually("the honest client is served on", lambda last=last: len(pinger.latencies_ms) > last)  # type: ignore[misc]
            p99_ms = quantiles(pinger.latencies_ms[first:], n=100)[98]
            print(f"  {name:20} {answered / STORM_S:8.0f} answers a second, honest p99 {p99_ms:6.1f} ms", flush=True)
            stage.check(answered > 0, f"{name} is not answered")
            fenced = sorted(_fenced(honest.data))
            stage.check(fenced == known, f"{name}: the metadata log fences the brokers {fenced}, before {known}")
            if p99_ms > bar_ms:
                failures.append(f"{name}: p99 {p99_ms:.0f} ms")
        stage.check(not failures, f"bar {bar_ms:.0f} ms: {'. '.join(failures)}")


def _fenced(data: Path) -> Iterator[int]:
    """The brokers that the metadata log of a node fences, one for each time."""
    for path in sorted((data / f"{METADATA_TOPIC}-0").glob("*.log")):
        content = path.read_bytes()
        for place, header in iterate_batches(content):
            if header.attributes & CONTROL_BIT:
                continue
            for stored in records_of(content, place, header):
                record = decode_record(stored.value or b"")
                if isinstance(record, FenceBrokerRecord):
                    yield record.id
                elif isinstance(record, BrokerRegistrationChangeRecord) and record.fenced == FENCED:
                    yield record.broker_id
