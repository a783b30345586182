"""`moldau serve --cores 2` beside one process of the same machine: loads over eight partitions, in turns.

Each connection goes to the leader of its partition, as a client does. Both subjects run this broker, so that the peer
of these figures is Moldau on one core. On a machine with two cores the load generator uses these cores, too.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final, NamedTuple

from bench import load
from bench.client import Unanswered, connect_with_retries
from bench.figures import OURS, PEER, Figure
from bench.frames import (
    Frames,
    RotatingFrames,
    batch_for_frame_size,
    fetch_error_position,
    fetch_frame,
    produce_error_position,
    produce_frame,
)
from bench.groups import RunForm
from bench.outcome import Outcome
from bench.processes import children, cpu_time, memory
from bench.subjects import Bench, RunningBroker, remove_server, warm_memory
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from moldau.protocol.record_batch import parse_header

PARTITIONS: Final = 8
PATIENCE_S: Final = 30.0
FETCH_SIZE: Final = 1 << 20
FILL_FRAME_SIZE: Final = 256 << 10
FILL_SIZE: Final = 32 << 20
"""The size (bytes) of each partition that is fetched."""
SCRATCH_SIZE: Final = 1 << 30
CORES: Final = {OURS: 2, PEER: 1}
NOTE: Final = "the peer is Moldau in one process"


class CoresLoad(NamedTuple):
    """A load with a connection to the leader of each partition."""

    name: str
    in_flight: int
    requests: int
    is_fetch: bool


LOADS: Final = (
    CoresLoad("--cores 2: produce 200 B, acks=all, 8 connections x 5 in flight", 5, 200_000, is_fetch=False),
    CoresLoad("--cores 2: fetch 1 MiB, 8 connections", 1, 6_000, is_fetch=True),
)


class CoresRun(NamedTuple):
    outcome: Outcome
    cpu_s: float
    """The CPU time of all broker processes."""
    resident_mb: float

    def rate(self, workload: CoresLoad) -> float:
        if workload.is_fetch:
            return self.outcome.received_size / 1e6 / self.outcome.seconds
        return self.outcome.requests / self.outcome.seconds


class MultiProcessBroker:
    """A broker that runs as one or several processes of this machine."""

    def __init__(self, bench: Bench, name: str, cores: int) -> None:
        self.name = name
        self.server = bench.new_server("moldau", extra=[f"moldau.cores={cores}"])
        bench.free_pair()  # The second process listens on the port after the controller's.
        self.server.format()
        self.running = RunningBroker(self.server)
        self._topics = 0
        self._cores = cores

    @property
    def pids(self) -> list[int]:
        """The ids of the broker processes, and of their supervisor if there are several."""
        found = [self.running.pid]
        return found if self._cores == 1 else [*found, *children(self.running.pid)]

    def new_topic(self) -> tuple[str, list[int]]:
        """Create a topic. Returns it with the port of each partition's leader."""
        self._topics += 1
        topic = f"{self.name}-{self._topics:06d}"
        wanted = CreatableTopic(name=topic, num_partitions=PARTITIONS, replication_factor=1)
        client = self.running.connect()
        answer = client.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=60_000), CreateTopicsResponse, 5)
        if answer.topics[0].error_code:
            raise Unanswered(f"topic {topic}: {answer.topics[0].error_message}")
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        found = client.ask(asked, MetadataResponse, 9)
        client.close()
        ports = {each.node_id: each.port for each in found.brokers}
        assert len(ports) == self._cores, "every process serves"
        partitions = sorted(found.topics[0].partitions, key=lambda each: each.partition_index)
        return topic, [ports[each.leader_id] for each in partitions]

    def delete_topic(self, topic: str) -> None:
        client = self.running.connect()
        client.ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=30_000), DeleteTopicsResponse, 5)
        client.close()


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    with ExitStack() as stack:
        machines = []
        for name, cores in CORES.items():
            machine = MultiProcessBroker(bench, name, cores)
            stack.callback(remove_server, machine.server)
            stack.enter_context(machine.running)
            await_processes(machine, cores)
            machines.append(machine)
        figures: list[Figure] = []
        for workload in LOADS:
            if form.case not in workload.name:
                continue
            print(f"  {workload.name}", flush=True)
            requests = workload.requests // (5 if form.is_quick else 1)
            for machine in machines:
                run_load(machine, workload, requests // 5)
            runs: dict[str, list[CoresRun]] = {machine.name: [] for machine in machines}
            for _ in range(form.rounds):
                for machine in machines:
                    warm_memory(machine.server.directory, SCRATCH_SIZE)
                    run = run_load(machine, workload, requests)
                    print(f"  {CORES[machine.name]} process(es): {_sentence(workload, run)}", flush=True)
                    runs[machine.name].append(run)
            figures += _figures(workload, runs)
    return figures


def await_processes(machine: MultiProcessBroker, cores: int) -> None:
    """Wait until every process serves."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        client = machine.running.connect()
        found = client.ask(MetadataRequest(topics=[]), MetadataResponse, 9).brokers
        client.close()
        if len(found) == cores:
            return
        if time.monotonic() > deadline:
            raise Unanswered(f"{len(found)} of {cores} processes serve")
        time.sleep(0.1)


def run_load(machine: MultiProcessBroker, workload: CoresLoad, requests: int) -> CoresRun:
    """Run a load on a topic of its own."""
    topic, ports = machine.new_topic()
    if workload.is_fetch:
        frames, position = fetch_frames(topic, ports), fetch_error_position(topic)
    else:
        frames, position = produce_frames(topic, ports, workload.in_flight), produce_error_position(topic)
    pids = machine.pids
    before = [cpu_time(pid) for pid in pids]
    outcome = load.run_load(ports, frames, in_flight=workload.in_flight, requests=requests, error_position=position)
    cpu_s = sum(cpu_time(pid).since(then).total_s for pid, then in zip(pids, before, strict=True))
    resident_mb = sum(memory(pid).resident_mb for pid in pids)
    machine.delete_topic(topic)
    return CoresRun(outcome, cpu_s, resident_mb)


def produce_frames(topic: str, ports: list[int], in_flight: int) -> list[Frames]:
    batch = batch_for_frame_size(topic, 200, time.time_ns() // 1_000_000)
    frames = [produce_frame(topic, batch, index) for index in range(PARTITIONS)]
    for port, frame in zip(ports, frames, strict=True):
        produce_repeatedly(port, frame, topic, 1)
    return [Frames(frame, in_flight) for frame in frames]


def fetch_frames(topic: str, ports: list[int]) -> list[Frames]:
    """Fill each partition, and return the fetches that read it piece by piece."""
    batch = batch_for_frame_size(topic, FILL_FRAME_SIZE, time.time_ns() // 1_000_000)
    step = parse_header(batch).records_count * FETCH_SIZE // FILL_FRAME_SIZE
    made: list[Frames] = []
    for index, port in enumerate(ports):
        produce_repeatedly(port, produce_frame(topic, batch, index), topic, FILL_SIZE // FILL_FRAME_SIZE)
        pieces = [
            fetch_frame(topic, 1 + piece * step, FETCH_SIZE, index) for piece in range(FILL_SIZE // FETCH_SIZE - 1)
        ]
        made.append(RotatingFrames(pieces, index))
    return made


def produce_repeatedly(port: int, frame: bytes, topic: str, count: int) -> None:
    """Send a produce request `count` times, beginning when the leader accepts the first one."""
    deadline = time.monotonic() + PATIENCE_S
    client = connect_with_retries(port)
    while error := struct.unpack_from(">h", client.exchange(frame), produce_error_position(topic))[0]:
        if time.monotonic() > deadline:
            raise Unanswered(f"the leader on port {port} refuses: {ErrorCode(error).name}")
        time.sleep(0.02)
    for _ in range(count - 1):
        client.exchange(frame)
    client.close()


def _figures(workload: CoresLoad, runs: dict[str, list[CoresRun]]) -> list[Figure]:
    generator = max(run.outcome.generator_share for mine in runs.values() for run in mine)

    def figure(what: str, unit: str, of: Callable[[CoresRun], float], *, less_is_better: bool = True) -> Figure:
        values = {name: [of(run) for run in mine] for name, mine in runs.items()}
        return Figure(f"{workload.name}: {what}", unit, values, less_is_better, NOTE, generator)

    rate_unit = "MB/s" if workload.is_fetch else "requests/s"
    return [
        figure("rate", rate_unit, lambda run: run.rate(workload), less_is_better=False),
        figure("p99", "ms", lambda run: run.outcome.latency_ms(0.99)),
        figure("CPU of all processes", "us", lambda run: run.cpu_s / run.outcome.requests * 1e6),
        figure("resident memory of all processes", "MB", lambda run: run.resident_mb),
    ]


def _sentence(workload: CoresLoad, run: CoresRun) -> str:
    unit = "MB/s" if workload.is_fetch else "requests/s"
    return (
        f"{run.rate(workload):,.0f} {unit}, p99 {run.outcome.latency_ms(0.99):.2f} ms,"
        f" CPU {run.cpu_s / run.outcome.requests * 1e6:.1f} us a request, {run.resident_mb:.0f} MB resident,"
        f" generator {100 * run.outcome.generator_share:.0f} % of a core"
    )
