"""The times that tests wait for: the first broker, a topic for each test, a cluster of three, a node in memory beside
one on a disk.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench.contenders import Contender
from bench.figures import OURS, PEER, Figure
from bench.groups import RunForm
from bench.processes import memory
from bench.start import compile_packages
from bench.subjects import Bench, RunningBroker, remove_server
from bench.throughput import WARM_UP_SHARE, workload_rate
from bench.trio import ThreeNodeCluster
from bench.workloads import LOADS
from moldau.testing import Cluster
from moldau.testing.clients.confluent import ConfluentClient

TESTS: Final = 200
IDLE_S: Final = 10.0
WORKLOAD: Final = next(load for load in LOADS if load.name == "produce 200 B, 4 connections x 5 in flight")
FIRST: Final = """\
import sys, time
import pytest
began = time.perf_counter()
from moldau.testing import Cluster
with Cluster(int(sys.argv[1])):
    print(time.perf_counter() - began, flush=True)
"""
PROJECT: Final = f"""\
import time
import pytest
ends = []

@pytest.mark.parametrize("number", range({TESTS}))
def test_one(number, kafka):
    kafka.topic()
    ends.append(time.perf_counter())

def test_last():
    with open("took", "w") as took:
        took.write(str((ends[-1] - ends[0]) * 1000 / {TESTS - 1}))
"""


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    """Measure this broker alone, and beside Apache Kafka as a process if it can do the same."""
    compile_packages()
    return [
        Figure(
            "kit: first broker ready, the import of the kit included",
            "s",
            _first_broker(bench, form),
            note="Apache Kafka: formatted before, from exec to the first answer",
        ),
        Figure(
            "kit: three nodes ready",
            "s",
            _three_nodes(bench, form),
            note="Apache Kafka: formatted before, from the first exec until all three accept clients",
        ),
        Figure(f"kit: {TESTS} tests with a topic each: time of one", "ms", {OURS: _tests(form)}),
        Figure("kit: a topic made and deleted by confluent-kafka", "ms", _topics(bench, form)),
        Figure("kit: resident, idle, in memory, one topic", "MB", {OURS: _idle(form)}),
        Figure(
            f"kit: {WORKLOAD.name}, in memory, against a disk: rate",
            "requests/s",
            _produce(bench, form),
            less_is_better=False,
            note="the peer is Moldau on a disk",
        ),
    ]


def _first(nodes: int) -> float:
    """Return the time (s) until a cluster serves, in a process that has imported pytest."""
    return float(subprocess.check_output([sys.executable, "-c", FIRST, str(nodes)], text=True, timeout=120))


def _first_broker(bench: Bench, form: RunForm) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {OURS: []}
    for _ in range(form.rounds):
        values[OURS].append(_first(1))
        if PEER in bench.names:
            server = bench.new_server(PEER)
            server.format()
            with RunningBroker(server) as running:
                running.connect().close()
                values.setdefault(PEER, []).append(time.perf_counter() - running.started)
            remove_server(server)
        print(f"  first broker: {', '.join(f'{name} {each[-1]:.3f} s' for name, each in values.items())}", flush=True)
    return values


def _three_nodes(bench: Bench, form: RunForm) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {OURS: []}
    for _ in range(form.rounds):
        values[OURS].append(_first(3))
        if PEER in bench.names:
            with ThreeNodeCluster(bench, PEER) as trio:
                began = min(each.started for each in trio.running.values())
                values.setdefault(PEER, []).append(time.perf_counter() - began)
        print(f"  three nodes: {', '.join(f'{name} {each[-1]:.3f} s' for name, each in values.items())}", flush=True)
    return values


def _tests(form: RunForm) -> list[float]:
    """Return the times (ms) from the end of one test to the end of the next one, in a session of pytest."""
    found = []
    for _ in range(form.rounds):
        with TemporaryDirectory() as project:
            Path(project, "test_topics.py").write_text(PROJECT)
            command = [sys.executable, "-m", "pytest", "-q", "-p", "moldau.testing.plugin", "-p", "no:cacheprovider"]
            variables = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
            subprocess.run(command, cwd=project, env=variables, check=True, stdout=subprocess.DEVNULL, timeout=120)
            found.append(float(Path(project, "took").read_text()))
        print(f"  {TESTS} tests with a topic each: {found[-1]:.2f} ms each", flush=True)
    return found


def _topics(bench: Bench, form: RunForm) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {}
    for name in bench.names:
        with ExitStack() as stack:
            if name == OURS:
                bootstrap = stack.enter_context(Cluster()).bootstrap_servers
            else:
                server = bench.new_server(name)
                server.format()
                stack.callback(remove_server, server)
                stack.enter_context(RunningBroker(server)).connect().close()
                bootstrap = server.bootstrap
            client = ConfluentClient({"bootstrap.servers": bootstrap})
            _made_and_deleted(client, 0)
            for number in range(1, form.rounds + 1):
                values.setdefault(name, []).append(_made_and_deleted(client, number))
            client.close()
        print(f"  a topic made and deleted, {name}: {min(values[name]):.2f} ms", flush=True)
    return values


def _made_and_deleted(client: ConfluentClient, number: int) -> float:
    began = time.perf_counter()
    for each in range(TESTS):
        client.create_topic(f"t-{number}-{each}", 1, 1, {})
        client.delete_topics([f"t-{number}-{each}"])
    return (time.perf_counter() - began) * 1000 / TESTS


def _idle(form: RunForm) -> list[float]:
    found = []
    for _ in range(form.rounds):
        with Cluster() as kafka:
            kafka.create_topic("idle")
            time.sleep(IDLE_S)
            found.append(memory(kafka.node(1).pid).resident_mb)
        print(f"  idle in memory: {found[-1]:.1f} MB", flush=True)
    return found


def _produce(bench: Bench, form: RunForm) -> dict[str, list[float]]:
    requests = WORKLOAD.requests_quick if form.is_quick else WORKLOAD.requests
    values: dict[str, list[float]] = {OURS: [], PEER: []}
    with ExitStack() as stack:
        contenders = {}
        for name in values:
            server = bench.new_server(OURS)
            server.format()
            stack.callback(remove_server, server)
            command = [*server.serve_command()[:2], "--memory", "--port", str(server.port)] if name == OURS else None
            running = stack.enter_context(RunningBroker(server, command))
            running.connect().close()
            contenders[name] = Contender(running)
            contenders[name].run_load(WORKLOAD, max(requests // WARM_UP_SHARE, 100))
        for _ in range(form.rounds):
            for name, contender in contenders.items():
                contender.warm_memory(WORKLOAD.log_size(requests))
                values[name].append(workload_rate(WORKLOAD, contender.run_load(WORKLOAD, requests)))
            print(f"  produce: {values[OURS][-1]:,.0f} in memory, {values[PEER][-1]:,.0f} on a disk", flush=True)
    return values
