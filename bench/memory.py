"""The memory of an idle broker."""

from __future__ import annotations

import time

from bench.figures import Figure
from bench.groups import RunForm
from bench.processes import memory
from bench.subjects import Bench, RunningBroker, remove_server

TOPIC = "idle"
IDLE_S = 10.0


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    """Measure the memory ten seconds after the start, with one topic that was written once."""
    resident: dict[str, list[float]] = {}
    anonymous: dict[str, list[float]] = {}
    for _ in range(form.rounds):
        for name in bench.names:
            server = bench.new_server(name)
            server.format()
            with RunningBroker(server) as running:
                client = running.connect()
                client.create_topic(TOPIC)
                client.close()
                time.sleep(max(0.0, IDLE_S - (time.perf_counter() - running.started)))
                held = memory(running.pid)
            remove_server(server)
            resident.setdefault(name, []).append(held.resident_mb)
            anonymous.setdefault(name, []).append(held.anonymous_mb)
            print(f"  memory {name}: {held.resident_mb:.1f} MB resident", flush=True)
    return [
        Figure("memory: resident, idle, one topic", "MB", resident),
        Figure("memory: anonymous part of it", "MB", anonymous),
    ]
