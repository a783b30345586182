"""The time from the start of the process to the first acknowledged produce."""

from __future__ import annotations

import compileall
import time
from pathlib import Path

from bench.figures import Figure
from bench.groups import RunForm
from bench.processes import cpu_time
from bench.subjects import Bench, MoldauServer, RunningBroker, Server, remove_server
from building.hot_path import PACKAGES

TOPIC = "started"


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    """Measure starts on a directory with one topic, and on a new directory, of the brokers in turns."""
    rounds = form.rounds
    known: dict[str, list[float]] = {}
    known_cpu: dict[str, list[float]] = {}
    fresh: dict[str, list[float]] = {}
    servers = {}
    compile_packages()
    for name in bench.names:
        servers[name] = server = bench.new_server(name)
        server.format()
        with RunningBroker(server) as running:
            running.connect().create_topic(TOPIC)
    for each in range(rounds):
        for name in bench.names:
            seconds, cpu_s = _start(servers[name])
            known.setdefault(name, []).append(seconds)
            known_cpu.setdefault(name, []).append(cpu_s)
            print(f"  start {each + 1}/{rounds} {name}: {seconds:.3f} s, CPU {cpu_s:.2f} s", flush=True)
    for _ in range(rounds):
        for name in bench.names:
            fresh.setdefault(name, []).append(_start_fresh(bench.new_server(name)))
    for server in servers.values():
        remove_server(server)
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
    """Compile all modules to bytecode. Without bytecode a start takes three times as long."""
    root = Path(__file__).parent.parent
    for package in PACKAGES:
        compileall.compile_dir(root / package, quiet=1)


def _start(server: Server) -> tuple[float, float]:
    """Return the time and the CPU time (s) of a start. The CPU time varies less on a busy machine."""
    with RunningBroker(server) as running:
        client = running.connect()
        client.produce_with_retries(TOPIC)
        return time.perf_counter() - running.started, cpu_time(running.pid).total_s


def _start_fresh(server: Server) -> float:
    command = None
    if isinstance(server, MoldauServer):
        command = server.serve_command_without_file()
        Path(server.data).mkdir(parents=True)
    else:
        server.format()
    try:
        with RunningBroker(server, command) as running:
            client = running.connect()
            client.auto_create_topic(TOPIC)
            client.produce_with_retries(TOPIC)
            return time.perf_counter() - running.started
    finally:
        remove_server(server)
