"""A whole node watched: what its metrics say after a little of everything, and when it is ready."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

from moldau.broker.coordinators.share_state_persister import NO_WAITER
from moldau.broker.metrics.catalogue import QUOTA_ROWS, TIERED_ROWS, metrics
from moldau.coordinator.share_coordinator.events import InitializeState, StateAnswer
from moldau.coordinator.share_coordinator.state import ShareKey
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from moldau.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.support.node import HOST, Node, batch, fetch_request, serve_and
from tests.support.share_consumer import ACCEPT, GROUP, RELEASE, Consumer, Taken
from tests.support.share_consumer import SETTINGS as SHARE_SETTINGS
from tests.support.transactional_producer import SETTINGS, started

HTTP_PORT = 9464
LISTENER = f"http://:{HTTP_PORT}"
OF_THE_PROCESS = {
    "moldau_build_info",
    "moldau_gc_pause_seconds",
    "process_cpu_seconds_total",
    "process_max_fds",
    "process_open_fds",
    "process_resident_memory_bytes",
}
"""A simulated node has none."""
OF_SEVERAL_PROCESSES = {"moldau_core_up"}
"""A node that is the only process of its machine has none (`test_machine.py`)."""
OF_TIERED_STORAGE = {row.split()[0] for row in TIERED_ROWS.strip().split("\n")[::3]}
"""A node without it has none (`test_storage_tiering.py`)."""
OF_QUOTAS = {row.split()[0] for row in QUOTA_ROWS.strip().split("\n")[::3]}
"""Without quotas there are none (`test_traffic_quotas.py`)."""
OF_SHARE_PARTITIONS = {
    name
    for name in metrics()
    if any(part in name for part in ("sharepartitionmetrics", "last_pruned", "deadletterqueue"))
}
"""Without share partitions there are none. The tests of dead letters have theirs (`test_dead_letters.py`)."""
OF_LAGS = {name for name in metrics() if name.startswith(("kafka_consumergroup_", "moldau_group_lag_uncounted"))}
"""Without a committed offset there are none (`broker/exporter/test_exporter.py`)."""
DASHBOARD = Path(__file__).parents[4] / "docs" / "grafana" / "moldau.json"


async def get(path: str) -> tuple[int, str]:
    reader, writer = await asyncio.open_connection(HOST, HTTP_PORT, limit=1 << 24)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body


async def scrape() -> dict[str, float]:
    """Samples by name and labels."""
    status, text = await get("/metrics")
    assert status == 200
    samples = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            assert name not in samples, f"{name} twice"
            samples[name] = float(value)
    return samples


def test_traffic_is_counted_by_topic_and_in_sum() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("a")
        await client.create("b")
        records = batch("x", "y")
        for topic in ("a", "a", "b"):
            assert (await client.produce(topic, records)).error_code == 0
        assert (await client.produce("nope", records)).error_code == 3
        answer = await client.fetch("a")
        assert answer.records is not None
        seen = await scrape()
        topics = "kafka_server_brokertopicmetrics_"
        assert seen[f'{topics}messagesin_total{{topic="a"}}'] == 4
        assert seen[f"{topics}messagesin_total"] == 6
        assert seen[f'{topics}bytesin_total{{topic="b"}}'] == len(records)
        assert seen[f"{topics}bytesin_total"] == 3 * len(records)
        assert seen[f'{topics}bytesout_total{{topic="a"}}'] == len(answer.records)
        assert seen[f"{topics}totalproducerequests_total"] == 4
        assert seen[f"{topics}failedproducerequests_total"] == 1
        errors = "kafka_network_requestmetrics_errors_total"
        assert seen[f'{errors}{{request="Produce",error="UNKNOWN_TOPIC_OR_PARTITION"}}'] == 1
        assert seen['kafka_log_log_logendoffset{topic="a",partition="0"}'] == 4
        assert seen["kafka_server_replicamanager_leadercount"] == 2
        assert seen["kafka_controller_kafkacontroller_globaltopiccount"] == 2
        await client.ask(DeleteTopicsRequest(topic_names=["a"], timeout_ms=1000), 5)
        await asyncio.sleep(0.1)
        after = await scrape()
        assert after[f"{topics}messagesin_total"] == 6
        assert f'{topics}messagesin_total{{topic="a"}}' not in after

    serve_and(story, moldau_http_listener=LISTENER)


def test_connections_and_what_is_parked_are_seen() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("a")
        waiting = await node.connect()
        waiting.send(fetch_request([("a", 0, 0)], max_wait_ms=60_000, min_bytes=1), 12)
        broken = await node.connect()
        broken.writer.write(b"\0\0\0\x03abc")
        assert await broken.reader.read() == b""
        await asyncio.sleep(0.1)
        seen = await scrape()
        sockets, labels = "kafka_server_socket_server_metrics_", '{listener="PLAINTEXT"}'
        assert seen['kafka_server_delayedoperationpurgatory_purgatorysize{delayedoperation="Fetch"}'] == 1
        assert seen['kafka_server_delayedoperationpurgatory_numdelayedoperations{delayedoperation="Fetch"}'] == 1
        assert seen[f"{sockets}connection_count{labels}"] == 2
        assert seen[f"{sockets}connection_creation_total{labels}"] == 3
        assert seen[f"{sockets}connection_close_total{labels}"] == 1
        assert seen[f"moldau_malformed_requests_total{labels}"] == 1
        assert seen[f"{sockets}incoming_byte_total{labels}"] > 7
        assert seen[f"{sockets}outgoing_byte_total{labels}"] > 0

    serve_and(story, moldau_http_listener=LISTENER)


def test_transactions_are_counted() -> None:
    late_s = 900 + 5 * 60

    async def story(node: Node) -> None:
        producer = await started(node)
        name = "kafka_server_replicamanager_"
        assert (await producer.send("t", b"v"))[0] == 0
        seen = await scrape()
        assert seen['moldau_transactional_ids{state="Ongoing"}'] == 1
        assert seen['moldau_transactional_ids{state="Empty"}'] == 0
        assert (seen[f"{name}produceridcount"], seen[f"{name}partitionswithlatetransactionscount"]) == (1, 0)
        partition = node.broker.replicas.get("t", 0)
        assert partition is not None
        partition.log.producers.entries[producer.id].last_timestamp -= (late_s + 1) * 1000
        assert (await scrape())[f"{name}partitionswithlatetransactionscount"] == 1
        assert await producer.end(commits=True) == 0
        seen = await scrape()
        assert seen['moldau_transactional_ids{state="Ongoing"}'] == 0
        assert seen[f"{name}partitionswithlatetransactionscount"] == 0

    serve_and(story, moldau_http_listener=LISTENER, **SETTINGS)


def test_groups_are_counted() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        node.broker.topics.create_internal(node.broker.coordinators.groups.topic)
        await asyncio.sleep(1)
        protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
        join = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id="",
            protocol_type="consumer",
            protocols=protocols,
        )
        assert (await client.ask(join, 2)).error_code == 0
        seen = await scrape()
        groups = "kafka_coordinator_group_groupmetadatamanager_numgroups"
        assert (seen[groups], seen[f"{groups}completingrebalance"], seen["moldau_group_members"]) == (1, 1, 1)
        metrics_of = "kafka_server_group_coordinator_metrics_"
        assert seen[f"{metrics_of}group_completed_rebalance_count"] == 1
        beat = ShareGroupHeartbeatRequest(group_id="s", member_id="m", member_epoch=0, subscribed_topic_names=["t"])
        assert (await client.ask(beat, 1)).error_code == 0
        seen = await scrape()
        assert seen[metrics_of + 'group_count{protocol="share"}'] == 1
        assert seen[metrics_of + 'share_group_count{state="Stable"}'] == 1
        assert seen[f"{metrics_of}share_group_rebalance_count"] == 1
        assert seen[metrics_of + 'streams_group_count{state="NotReady"}'] == 0
        assert seen[f"{metrics_of}group_completed_rebalance_count"] == 1, "that of the classic group"

    serve_and(story, moldau_http_listener=LISTENER)


def test_what_share_groups_have_in_flight_is_counted() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        topic_id = await client.create("t")
        await client.produce("t", batch("a", "b", "c"))
        key = ShareKey(GROUP, topic_id, 0)
        begun: list[StateAnswer] = []
        node.broker.coordinators.share_persister.ask(InitializeState(NO_WAITER, key, 1, 0), begun.append)
        while not begun:
            await asyncio.sleep(0.1)
        consumer = Consumer(client, topic_id)
        assert await consumer.take(wait_ms=1_000) == [Taken(0, [b"a", b"b", b"c"], [(0, 2, 1)], 0)]
        assert await consumer.acknowledge(0, 1, ACCEPT, RELEASE) == 0
        seen = await scrape()
        acknowledged = "kafka_server_sharegroupmetrics_recordacknowledgements_total"
        assert [seen[f'{acknowledged}{{ackType="{each}"}}'] for each in ("Accept", "Release", "Reject")] == [1, 1, 0]
        assert seen["kafka_server_sharegroupmetrics_partitionloadtimems_count"] == 1
        assert seen["kafka_server_sharesessioncache_sharesessionscount"] == 1
        assert seen["kafka_server_sharesessioncache_sharepartitionscount"] == 1
        labels = f'{{group="{GROUP}",topic="t",partition="0"}}'
        assert seen[f"kafka_server_sharepartitionmetrics_inflightmessagecount{labels}"] == 2
        assert seen[f"kafka_server_sharepartitionmetrics_acquisitionlocktimeout_total{labels}"] == 0
        assert seen["kafka_server_share_coordinator_metrics_write_total"] == 1, "the first acknowledgement"
        assert seen["kafka_server_brokertopicmetrics_totalsharefetchrequests_total"] == 1
        assert seen["kafka_server_brokertopicmetrics_totalshareacknowledgementrequests_total"] == 1
        await asyncio.sleep(16)
        seen = await scrape()
        assert seen[f"kafka_server_sharepartitionmetrics_acquisitionlocktimeout_total{labels}"] == 1

    serve_and(story, moldau_http_listener=LISTENER, **SHARE_SETTINGS)


def test_single_topics_and_partitions_have_room_up_to_a_limit() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("a", partitions=4)
        await client.create("b")
        seen = await scrape()
        assert len([name for name in seen if name.startswith("kafka_log_log_size")]) == 1
        assert seen["moldau_series_left_out"] == 5
        assert seen["kafka_server_replicamanager_partitioncount"] == 5

    serve_and(story, moldau_http_listener=LISTENER, moldau_metrics_series_max=1)


def test_every_metric_of_the_catalogue_has_a_sample_once_the_node_was_used() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("a")
        await client.produce("a", batch("x"))
        await client.produce("nope", batch("x"))
        await client.fetch("a")
        names = {name.partition("{")[0] for name in await scrape()}
        names |= {re.sub(r"_(bucket|sum|count)$", "", name) for name in names}
        elsewhere = OF_TIERED_STORAGE | OF_QUOTAS | OF_SHARE_PARTITIONS | OF_LAGS
        missing = {name for name in metrics() if name not in names and name not in elsewhere}
        assert missing == OF_THE_PROCESS | OF_SEVERAL_PROCESSES

    serve_and(story, moldau_http_listener=LISTENER)


def test_a_node_is_ready_while_it_serves() -> None:
    async def story(node: Node) -> None:
        while True:
            try:
                status, text = await get("/readyz")
                break
            except OSError:
                await asyncio.sleep(0)
        assert (status, text) == (503, "the node is starting\n")
        assert (await get("/healthz"))[0] == 200
        assert (await get("/metrics"))[0] == 200
        client = await node.connect()
        await client.create("a")
        assert await get("/readyz") == (200, "ok\n")
        node.broker.registration.is_fenced = True
        assert await get("/readyz") == (503, "the controller has fenced this broker\n")

    serve_and(story, moldau_http_listener=LISTENER)


def test_without_a_listener_no_errors_are_counted() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("a")
        assert node.broker.metrics is None
        assert not [r for each in node.broker.listeners for r in each.routes.values() if r.encoder_wrapper is not None]

    serve_and(story)


def test_the_dashboard_shows_metrics_that_exist() -> None:
    board = json.loads(DASHBOARD.read_text("utf-8"))
    expressions = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    named = {name for each in expressions for name in re.findall(r"\b(?:kafka|moldau|process)_\w+", each)}
    known = set(metrics())
    for metric in metrics().values():
        if metric.kind in ("histogram", "summary"):
            known |= {f"{metric.name}_{suffix}" for suffix in ("bucket", "sum", "count")}
    assert named - known == set()
    assert len(named) > 25
