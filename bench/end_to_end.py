"""The latency from a producer to a consumer, one record at a time: measured by kafka-e2e-latency, and by raw requests.

The tool gives percentiles in whole milliseconds. The raw loop has a finer clock, and a client that costs next to
nothing. In each round a fetch waits at the end of the log, then a record is produced with acks=all, and the fetch's
reply with the record ends the round.
"""

from __future__ import annotations

import re
import socket
import struct
import time
from array import array
from collections.abc import Callable
from typing import Final, NamedTuple

from bench.contenders import Contender, ResourceUsage, run_in_turns, warmed_contenders
from bench.figures import Figure
from bench.frames import batch_of, produce_error_position, produce_frame
from bench.groups import RunForm
from bench.kafka_tools import run_tool
from bench.outcome import LoadFailed
from bench.subjects import Bench
from bench.tail import Consumer
from tests.conformance.toolchain import Toolchain

MESSAGES: Final = 15_000
MESSAGES_QUICK: Final = 3_000
RECORD_SIZE: Final = 100
WARM_UP_MESSAGES: Final = 200

_ERROR = struct.Struct(">h").unpack_from


class Latency(NamedTuple):
    """The mean and the p99 of latencies, in milliseconds."""

    average_ms: float
    p99_ms: float


class LatencyRun(NamedTuple):
    """The latencies of one run, with the broker's resources."""

    latency: Latency
    spent: ResourceUsage
    messages: int


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    contenders = warmed_contenders(bench, form)
    messages = MESSAGES_QUICK if form.is_quick else MESSAGES
    toolchain = bench.toolchain

    def raw(contender: Contender) -> LatencyRun:
        with contender.new_topic() as (_, topic):
            return LatencyRun(*contender.measure_usage(lambda: _by_requests(contender.port, topic, messages)), messages)

    figures = _figures("end to end, raw requests", run_in_turns(contenders, form.rounds, raw, _sentence))
    if toolchain is None:
        return figures
    found: Toolchain = toolchain

    def tool(contender: Contender) -> LatencyRun:
        with contender.new_topic() as (_, topic):
            return LatencyRun(
                *contender.measure_usage(lambda: _by_tool(found, contender.bootstrap, topic, messages)), messages
            )

    return figures + _figures("kafka-e2e-latency", run_in_turns(contenders, form.rounds, tool, _sentence))


def _by_tool(toolchain: Toolchain, bootstrap: str, topic: str, messages: int) -> Latency:
    """Run kafka-e2e-latency, and parse its output: `Avg latency: 0.5 ms` and `Percentiles: 50th = 0, 99th = 1, 99.9th =
    3`.
    """
    output = run_tool(toolchain, "EndToEndLatency", bootstrap, topic, str(messages), "all", str(RECORD_SIZE)).output
    average = re.search(r"Avg latency: ([\d.]+) ms", output)
    p99 = re.search(r"99th = (\d+)", output)
    assert average and p99, output[-400:]
    return Latency(float(average[1]), float(p99[1]))


def _by_requests(port: int, topic: str, messages: int) -> Latency:
    batch = batch_of([RECORD_SIZE], time.time_ns() // 1_000_000)
    frame, error_position = produce_frame(topic, batch), produce_error_position(topic)
    consumer = Consumer(port, topic, len(batch), 1)
    latencies = array("Q")
    with socket.create_connection(("127.0.0.1", port), timeout=30) as producer, consumer.socket:
        producer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(messages + WARM_UP_MESSAGES):
            consumer.ask()
            began = time.perf_counter_ns()
            producer.sendall(frame)
            while not consumer.receive():
                if consumer.is_waiting:
                    consumer.ask()
            latencies.append(time.perf_counter_ns() - began)
            (error,) = _ERROR(producer.recv(1024), error_position)
            if error:
                raise LoadFailed(f"error {error} in a reply")
    counted = sorted(latencies[WARM_UP_MESSAGES:])
    return Latency(sum(counted) / len(counted) / 1e6, counted[int(0.99 * len(counted))] / 1e6)


def _figures(name: str, runs: dict[str, list[LatencyRun]]) -> list[Figure]:
    def figure(what: str, unit: str, of: Callable[[LatencyRun], float], note: str = "") -> Figure:
        return Figure(
            f"{name}: {what}", unit, {who: [of(run) for run in mine] for who, mine in runs.items()}, note=note
        )

    whole = "the tool says whole milliseconds" if name.startswith("kafka") else ""
    return [
        figure("average", "ms", lambda run: run.latency.average_ms),
        figure("p99", "ms", lambda run: run.latency.p99_ms, whole),
        figure("user + system CPU", "us", lambda run: run.spent.cpu.total_s / run.messages * 1e6),
    ]


def _sentence(run: LatencyRun) -> str:
    return f"average {run.latency.average_ms:.3f} ms, p99 {run.latency.p99_ms:.3f} ms"
