"""Ten thousand idle connections, each after one request: the memory of each, and their effect on busy connections."""

from __future__ import annotations

import resource
import socket
import time
from statistics import median
from typing import Final

from bench import load
from bench.figures import Figure
from bench.frames import Frames, batch_for_frame_size, produce_error_position, produce_frame, request_frame
from bench.groups import RunForm
from bench.processes import memory
from bench.subjects import Bench, RunningBroker, remove_server
from moldau.protocol.messages.api_versions import ApiVersionsRequest

TOPIC: Final = "busy"
IDLE_COUNT: Final = 10_000
DESCRIPTORS: Final = 2 * IDLE_COUNT
"""The limit on file descriptors of this process and of each broker."""
FRAME_SIZE: Final = 200
CONNECTIONS: Final = 4
IN_FLIGHT: Final = 5
REQUESTS: Final = 20_000
LOADS: Final = 5
SETTLING_S: Final = 3.0
API_VERSIONS_FRAME: Final = request_frame(
    ApiVersionsRequest(client_software_name="bench", client_software_version="1"), 3
)


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    """Measure the busy connections of each broker alone, then beside the idle ones, in turns."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, max(DESCRIPTORS, _hard_limit())))
    each_kb: dict[str, list[float]] = {}
    ratios: dict[str, list[float]] = {}
    for name in bench.names:
        server = bench.new_server(name)
        server.format()
        with RunningBroker(server) as running:
            running.connect().create_topic(TOPIC)
            _busy_p99_ms(server.port)
            for _ in range(form.rounds):
                alone_ms = _busy_p99_ms(server.port)
                before_mb = memory(running.pid).anonymous_mb
                idle = [_opened(server.port) for _ in range(IDLE_COUNT)]
                time.sleep(SETTLING_S)
                grown_mb = memory(running.pid).anonymous_mb - before_mb
                beside_ms = _busy_p99_ms(server.port)
                for connection in idle:
                    connection.close()
                time.sleep(SETTLING_S)
                each_kb.setdefault(name, []).append(grown_mb * 1e6 / IDLE_COUNT / 1024)
                ratios.setdefault(name, []).append(beside_ms / alone_ms)
                took = f"{each_kb[name][-1]:.1f} KB each; busy p99 {alone_ms:.2f} ms alone, {beside_ms:.2f} ms beside"
                print(f"  idle connections {name}: {took}", flush=True)
        remove_server(server)
    # What one round leaves in the process's heap is used again by the next: the first tells what they need.
    first_kb = {name: values[:1] for name, values in each_kb.items()}
    return [
        Figure("10,000 idle connections: memory of each", "KB", first_kb, note="growth of anonymous memory"),
        Figure("10,000 idle connections: p99 of the busy ones, times that without", "x", ratios),
    ]


def _hard_limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def _opened(port: int) -> socket.socket:
    """Open a connection, and read the response to ApiVersions, as every client does."""
    connection = socket.create_connection(("127.0.0.1", port))
    connection.sendall(API_VERSIONS_FRAME)
    connection.recv(4096)
    return connection


def _busy_p99_ms(port: int) -> float:
    """Return the median p99 (ms) of a few loads, because a single one may be disturbed by other work of the machine."""
    batch = batch_for_frame_size(TOPIC, FRAME_SIZE, time.time_ns() // 1_000_000)
    frames = [Frames(produce_frame(TOPIC, batch), IN_FLIGHT) for _ in range(CONNECTIONS)]
    position = produce_error_position(TOPIC)
    return median(
        load.run_load(port, frames, in_flight=IN_FLIGHT, requests=REQUESTS, error_position=position).latency_ms(0.99)
        for _ in range(LOADS)
    )
