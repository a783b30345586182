"""Three nodes under load: replication factor 3, acks=all, beside three of Apache Kafka."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final, NamedTuple

from bench import load
from bench.client import Unanswered, connect_with_retries
from bench.figures import Figure
from bench.frames import Frames, batch_for_frame_size, produce_error_position, produce_frame
from bench.groups import RunForm
from bench.outcome import Outcome
from bench.subjects import Bench, warm_memory
from bench.trio import PATIENCE_S, ClusterUsage, ThreeNodeCluster
from moldau.protocol.errors import ErrorCode

PARTITIONS: Final = 6
WARM_UP_TIMES: Final = 3
"""Three JVMs on one machine take this many times as long to warm up as one."""
WARM_UP_OURS_S: Final = 10.0
RETRY_S: Final = 0.02
SCRATCH_SIZE_MIN: Final = 1 << 30
MEMORY_NAME: Final = "three nodes under load: resident memory of the three"


class ClusterLoad(NamedTuple):
    """A load of requests of one size, with a connection to the leader of each partition."""

    name: str
    size: int
    connections: int
    in_flight: int
    requests: int
    is_counted_in_mb: bool = False


SMALL: Final = ClusterLoad("three nodes, produce 200 B, 6 partitions x 5 in flight", 200, PARTITIONS, 5, 24_000)
LOADS: Final = (
    SMALL,
    ClusterLoad("three nodes, produce 16 KiB, 6 x 5", 16 << 10, PARTITIONS, 5, 12_000, is_counted_in_mb=True),
    ClusterLoad("three nodes, produce 256 KiB, 6 x 5", 256 << 10, PARTITIONS, 5, 2_400, is_counted_in_mb=True),
    ClusterLoad("three nodes, produce 200 B, one in flight", 200, 1, 1, 8_000),
)


class ClusterRun(NamedTuple):
    """One run of a load against one cluster."""

    outcome: Outcome
    spent: ClusterUsage

    def rate(self, workload: ClusterLoad) -> float:
        amount = self.outcome.sent_size / 1e6 if workload.is_counted_in_mb else self.outcome.requests
        return amount / self.outcome.seconds

    def cpu(self, workload: ClusterLoad) -> float:
        """The CPU time: microseconds for each request, or seconds for each gigabyte."""
        if workload.is_counted_in_mb:
            return self.spent.cpu.total_s / (self.outcome.sent_size / 1e9)
        return self.spent.cpu.total_s / self.outcome.requests * 1e6


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    with ExitStack() as stack:
        trios = [stack.enter_context(ThreeNodeCluster(bench, name)) for name in bench.names]
        for trio in trios:
            warm_up(trio, WARM_UP_OURS_S if trio.name == "moldau" else WARM_UP_TIMES * form.warm_up_s)
        figures: list[Figure] = []
        resident: dict[str, list[float]] = {trio.name: [] for trio in trios}
        for workload in LOADS:
            print(f"  {workload.name}", flush=True)
            runs: dict[str, list[ClusterRun]] = {trio.name: [] for trio in trios}
            for _ in range(form.rounds):
                for trio in trios:
                    warm_memory(trio.directory, max(SCRATCH_SIZE_MIN, 3 * workload.requests * workload.size))
                    run = run_load(trio, workload, workload.requests)
                    print(f"  {trio.name}: {_sentence(workload, run)}", flush=True)
                    runs[trio.name].append(run)
                    resident[trio.name].append(run.spent.resident_mb_max)
            figures += _figures(workload, runs)
    highest = {name: [max(values)] for name, values in resident.items()}
    return [*figures, Figure(MEMORY_NAME, "MB", highest)]


def run_load(trio: ThreeNodeCluster, workload: ClusterLoad, requests: int) -> ClusterRun:
    """Run a load on a topic of its own. Each connection goes to the leader of its partition."""
    topic = f"{trio.name}-{time.monotonic_ns() // 1_000_000:015d}"
    trio.create_topic(topic, PARTITIONS)
    leaders = trio.partitions(topic)[: workload.connections]
    ports = [trio.servers[each.leader_id].port for each in leaders]
    batch = batch_for_frame_size(topic, workload.size, time.time_ns() // 1_000_000)
    frames = [Frames(produce_frame(topic, batch, index), workload.in_flight) for index in range(len(ports))]
    position = produce_error_position(topic)
    for port, each in zip(ports, frames, strict=True):
        _await_written(port, bytes(each.next_frames(1)), position)

    def work() -> Outcome:
        return load.run_load(ports, frames, in_flight=workload.in_flight, requests=requests, error_position=position)

    run = ClusterRun(*trio.measure_usage(work))
    trio.delete_topic(topic)
    return run


def _await_written(port: int, frame: bytes, error_position: int) -> None:
    """Produce until the leader accepts a record. Apache Kafka's metadata name a leader before that broker knows of its
    role, and a load must not get such refusals.
    """
    deadline = time.monotonic() + PATIENCE_S
    client = connect_with_retries(port)
    while (error := struct.unpack_from(">h", client.exchange(frame), error_position)[0]) != ErrorCode.NONE:
        if time.monotonic() > deadline:
            raise Unanswered(f"the leader on port {port} refuses: {ErrorCode(error).name}")
        time.sleep(RETRY_S)
    client.close()


def warm_up(trio: ThreeNodeCluster, seconds: float) -> None:
    """Produce small records for some seconds."""
    print(f"  {trio.name}: warming up for {seconds:.0f} s", flush=True)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        run_load(trio, SMALL, 6_000)


def _figures(workload: ClusterLoad, runs: dict[str, list[ClusterRun]]) -> list[Figure]:
    generator = max(run.outcome.generator_share for mine in runs.values() for run in mine)

    def figure(what: str, unit: str, of: Callable[[ClusterRun], float], *, less_is_better: bool = True) -> Figure:
        values = {name: [of(run) for run in mine] for name, mine in runs.items()}
        return Figure(f"{workload.name}: {what}", unit, values, less_is_better, generator=generator)

    rate_unit, cpu_unit = ("MB/s", "s/GB") if workload.is_counted_in_mb else ("requests/s", "us")
    return [
        figure("rate", rate_unit, lambda run: run.rate(workload), less_is_better=False),
        figure("p50", "ms", lambda run: run.outcome.latency_ms(0.5)),
        figure("p99", "ms", lambda run: run.outcome.latency_ms(0.99)),
        figure("user + system CPU of the three", cpu_unit, lambda run: run.cpu(workload)),
    ]


def _sentence(workload: ClusterLoad, run: ClusterRun) -> str:
    rate_unit, cpu_unit = ("MB/s", "s/GB") if workload.is_counted_in_mb else ("requests/s", "us")
    median_ms, p99_ms = run.outcome.latency_ms(0.5), run.outcome.latency_ms(0.99)
    return (
        f"{run.rate(workload):,.0f} {rate_unit}, p50 {median_ms:.2f} ms, p99 {p99_ms:.2f} ms,"
        f" CPU {run.cpu(workload):.1f} {cpu_unit}, {run.spent.resident_mb_max:.0f} MB resident"
    )
