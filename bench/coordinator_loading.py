"""The time that a coordinator takes to load an existing log at the start of its broker, and its effect on other
requests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from bench.client import Client
from bench.figures import Figure
from bench.frames import batch_of, produce_frame
from bench.pinger import Pinger
from bench.processes import cpu_time, memory
from bench.subjects import RunningBroker, Server, remove_server

OTHER_TOPIC: Final = "other"
SEGMENT_NAME: Final = f"{0:020}.log"


class LoadingRows(NamedTuple):
    """The texts of a measurement: `title` for the progress, `loaded` and `others` for the names of the figures, `kept`
    for the name of the memory figure.
    """

    title: str
    loaded: str
    others: str
    kept: str


def prepare_server(server: Server, topic: str, log: bytes, begin: Callable[[Client], object]) -> Server:
    """Make a broker that was killed while partition 0 of an internal topic had this log. `begin` makes the broker
    create the topic.
    """
    server.format()
    with RunningBroker(server) as running:
        client = running.connect()
        client.create_topic(OTHER_TOPIC)
        begin(client)
        running.kill()
    (Path(server.data) / f"{topic}-0" / SEGMENT_NAME).write_bytes(log)
    return server


def figures_of_loads(
    servers: Mapping[str, Server], rounds: int, rows: LoadingRows, wait: Callable[[Client], None]
) -> list[Figure]:
    """Start the brokers in turns, and send other requests until `wait`, which waits for the last key of the log,
    returns. The brokers are removed.
    """
    measured: dict[str, dict[str, list[float]]] = {}
    for _ in range(rounds):
        for name, server in servers.items():
            values = _load(server, wait)
            print(f"  {rows.title} {name}: {', '.join(f'{key} {value:.3g}' for key, value in values.items())}")
            for key, value in values.items():
                measured.setdefault(key, {}).setdefault(name, []).append(value)
    for server in servers.values():
        remove_server(server)
    names = {
        "loaded": (f"{rows.loaded} loaded", "s"),
        "cpu": (f"{rows.loaded} loaded: user + system CPU", "s"),
        "p99": (f"p99 of other requests while {rows.others} load", "ms"),
        "slowest": (f"slowest of other requests while {rows.others} load", "ms"),
        "memory": (f"{rows.kept} loaded: anonymous memory", "MB"),
    }
    return [Figure(name, unit, measured[key]) for key, (name, unit) in names.items()]


def _load(server: Server, wait: Callable[[Client], None]) -> dict[str, float]:
    """Start a broker, and measure the loading from the time at which the broker answers."""
    with RunningBroker(server) as running:
        client = running.connect()
        client.produce_with_retries(OTHER_TOPIC)
        began = time.perf_counter()
        cpu_before = cpu_time(running.pid)
        others = Pinger(server.port, produce_frame(OTHER_TOPIC, batch_of([100], time.time_ns() // 1_000_000)))
        wait(client)
        others.end()
        values = {
            "loaded": time.perf_counter() - began,
            "cpu": cpu_time(running.pid).since(cpu_before).total_s,
            "p99": others.p99_ms,
            "slowest": others.slowest_ms,
            "memory": memory(running.pid).anonymous_mb,
        }
        running.kill()
        return values
