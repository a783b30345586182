"""How long from the start of the process to the first acknowledged produce."""

from __future__ import annotations

import compileall
import time
from pathlib import Path

from bench.figures import Figure
from bench.groups import Form
from bench.processes import cpu_time
from bench.subjects import Bench, Ours, Running, Server, remove
from building.hot_path import PACKAGES

TOPIC = "started"


def measure(bench: Bench, form: Form) -> list[Figure]:
    """A directory with one topic, and a directory never used; the brokers take turns."""
    rounds = form.rounds
    known: dict[str, list[float]] = {}
    known_cpu: dict[str, list[float]] = {}
    fresh: dict[str, list[float]] = {}
    servers = {}
    compile_packages()
    for name in bench.names:
        servers[name] = server = bench.new(name)
        server.format()
        with Running(server) as running:
            running.connect().create_topic(TOPIC)
    for each in range(rounds):
        for name in bench.names:
            seconds, cpu_s = _start(servers[name])
            known.setdefault(name, []).append(seconds)
            known_cpu.setdefault(name, []).append(cpu_s)
            print(f"  start {each + 1}/{rounds} {name}: {seconds:.3f} s, CPU {cpu_s:.2f} s", flush=True)
    for _ in range(rounds):
        for name in bench.names:
            fresh.setdefault(name, []).append(_start_fresh(bench.new(name)))
    for server in servers.values():
        remove(server)
    return [
        Figure("start: exec to first acknowledged produce, one topic", "s", known),
        Figure("start: user + system CPU of it", "s", known_cpu),
        Figure(
            "start: exec to first acknowledged produce, new directory and an auto-created topic",
            "s",
            fresh,
            note="Moldau formats its directory within this time; Apache Kafka's was formatted before",
        ),
    ]


def compile_packages() -> None:
    """As a first start does: without bytecode a start takes three times as long, and sources have changed since."""
    root = Path(__file__).parent.parent
    for package in PACKAGES:
        compileall.compile_dir(root / package, quiet=1)


def _start(server: Server) -> tuple[float, float]:
    """Seconds on the clock, and of the CPU: the steadier figure on a busy machine."""
    with Running(server) as running:
        client = running.connect()
        client.produce_when_possible(TOPIC)
        return time.perf_counter() - running.started, cpu_time(running.pid).total_s


def _start_fresh(server: Server) -> float:
    command = None
    if isinstance(server, Ours):
        command = server.serve_command_without_file()
        Path(server.data).mkdir(parents=True)
    else:
        server.format()
    try:
        with Running(server, command) as running:
            client = running.connect()
            client.touch_topic(TOPIC)
            client.produce_when_possible(TOPIC)
            return time.perf_counter() - running.started
    finally:
        remove(server)
