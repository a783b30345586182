"""A node with a thousand partitions: its memory and starts, and how long their creation and deletion delay other
requests.
"""

from __future__ import annotations

import time

from bench.client import Client
from bench.figures import Figure
from bench.frames import batch_of, request_frame
from bench.groups import RunForm
from bench.pinger import Pinger
from bench.processes import cpu_time, memory
from bench.start import compile_packages
from bench.subjects import Bench, RunningBroker, Server, remove_server
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

TOPIC = "wide"
START = "start with 1,000 partitions after"
PARTITIONS = 1_000
BATCHES = 10
RECORD_SIZE = 1_000
IDLE_S = 5.0
AT_REST = 20
"""The number of topics, of `PARTITIONS` partitions each."""
SETTLED_S = 60.0
"""The time after a start at which the first check of retention is over."""
WATCHED_S = 30.0
PRODUCE_VERSION = 9
PARTITIONS_A_REQUEST = 100
PING = request_frame(ApiVersionsRequest(client_software_name="bench", client_software_version="1"), 3)


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    """Write ten batches of 1 KB into each of a thousand partitions. Then measure starts in turns, after SIGTERM and
    after SIGKILL.
    """
    measured: dict[str, dict[str, list[float]]] = {}

    def note(figure: str, name: str, value: float) -> None:
        measured.setdefault(figure, {}).setdefault(name, []).append(value)
        print(f"  partitions {name}: {figure} {value:.3g}", flush=True)

    compile_packages()
    servers = {name: bench.new_server(name) for name in bench.names}
    for name, server in servers.items():
        server.format()
        with RunningBroker(server) as running:
            client = running.connect()
            client.create_topic("other")
            stall = Pinger(server.port, PING)
            began = time.perf_counter()
            _create(client, TOPIC)
            _fill(client, TOPIC, 1)
            note("made", name, time.perf_counter() - began)
            stall.end()
            note("made_stall", name, stall.slowest_ms)
            _fill(client, TOPIC, BATCHES - 1)
            time.sleep(IDLE_S)
            note("memory_written", name, memory(running.pid).anonymous_mb)
    for how in ("clean", "killed"):
        for _ in range(form.rounds):
            for name, server in servers.items():
                seconds, cpu_s, anonymous_mb = _start(server, kill=how == "killed")
                note(f"start_{how}", name, seconds)
                note(f"cpu_{how}", name, cpu_s)
                note(f"memory_{how}", name, anonymous_mb)
    for name, server in servers.items():
        with RunningBroker(server) as running:
            client = running.connect()
            client.produce_with_retries(TOPIC)
            stall = Pinger(server.port, PING)
            client.delete_topic(TOPIC)
            time.sleep(3.0)
            stall.end()
            note("deleted_stall", name, stall.slowest_ms)
        remove_server(server)
    note("idle_cpu", "moldau", _at_rest(bench))
    names = {
        "memory_written": ("memory: anonymous, 1,000 partitions just written", "MB"),
        "memory_clean": ("memory: anonymous, 1,000 partitions, idle after a start", "MB"),
        "start_clean": (f"{START} a clean stop: exec to first acknowledged produce", "s"),
        "cpu_clean": (f"{START} a clean stop: user + system CPU of it", "s"),
        "start_killed": (f"{START} kill -9: exec to first acknowledged produce", "s"),
        "cpu_killed": (f"{START} kill -9: user + system CPU of it", "s"),
        "idle_cpu": ("20,000 partitions at rest after a clean stop and a start: CPU", "% of a core"),
        "made": ("1,000 partitions created and each written", "s"),
        "made_stall": ("1,000 partitions created and each written: slowest other request", "ms"),
        "deleted_stall": ("1,000 partitions deleted: slowest other request", "ms"),
    }
    return [Figure(name, unit, measured[key]) for key, (name, unit) in names.items()]


def _at_rest(bench: Bench) -> float:
    """Return the share (%) of a core that an idle node uses with many partitions of one batch each."""
    server = bench.new_server("moldau")
    server.format()
    topics = [f"{TOPIC}-{number}" for number in range(AT_REST)]
    with RunningBroker(server) as running:
        client = running.connect()
        for topic in topics:
            _create(client, topic)
            _fill(client, topic, 1)
    with RunningBroker(server) as running:
        running.connect().produce_with_retries(topics[0])
        time.sleep(SETTLED_S)
        before = cpu_time(running.pid).total_s
        time.sleep(WATCHED_S)
        share = (cpu_time(running.pid).total_s - before) / WATCHED_S * 100
    remove_server(server)
    return share


def _create(client: Client, topic: str) -> None:
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name=topic, num_partitions=PARTITIONS, replication_factor=1)], timeout_ms=60_000
    )
    answer = client.ask(request, CreateTopicsResponse, 5).topics[0]
    assert answer.error_code == ErrorCode.NONE, answer.error_message


def _fill(client: Client, topic: str, batches: int) -> None:
    """Produce the same batch to every partition, with retries for partitions that do not exist yet."""
    batch = batch_of([RECORD_SIZE], time.time_ns() // 1_000_000)
    left = list(range(PARTITIONS)) * batches
    deadline = time.monotonic() + 60
    while left:
        asked, left = left[:PARTITIONS_A_REQUEST], left[PARTITIONS_A_REQUEST:]
        data = [PartitionProduceData(index=index, records=batch) for index in asked]
        request = ProduceRequest(
            acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=data)]
        )
        answer = client.ask(request, ProduceResponse, PRODUCE_VERSION)
        refused = [each.index for each in answer.responses[0].partition_responses if each.error_code != ErrorCode.NONE]
        assert time.monotonic() < deadline, f"{len(refused)} partitions take no records"
        left += refused


def _start(server: Server, *, kill: bool) -> tuple[float, float, float]:
    """Start a broker. Returns the time and the CPU time (s) to the first acknowledged produce, and the memory `IDLE_S`
    later.
    """
    if kill:
        with RunningBroker(server) as running:
            client = running.connect()
            client.produce_with_retries(TOPIC)
            _fill(client, TOPIC, 1)
            running.kill()
    with RunningBroker(server) as running:
        client = running.connect()
        client.produce_with_retries(TOPIC)
        seconds = time.perf_counter() - running.started
        cpu_s = cpu_time(running.pid).total_s
        time.sleep(IDLE_S)
        return seconds, cpu_s, memory(running.pid).anonymous_mb
