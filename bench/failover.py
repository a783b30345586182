"""Three nodes, 1,000 partitions, defaults: how long partitions are unavailable when a node is killed, stops or is shut
down.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from statistics import median
from typing import Final

from bench.client import Client, Unanswered
from bench.failover_client import FailoverClient
from bench.figures import OURS, Figure
from bench.groups import RunForm
from bench.subjects import Bench
from bench.trio import NODES, ThreeNodeCluster
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

TOPIC: Final = "failover"
WRITTEN_PARTITIONS: Final = 30
"""The number of partitions that get records while a node is lost. They have a topic of their own, so that metadata
requests stay small.
"""
SILENT_TOPIC: Final = "silent"
PARTITIONS: Final = 1000
"""The number of all partitions together."""
STALL_S: Final = 2.0
SHUTDOWNS: Final = 10
CLIENT: Final = (
    "a client that goes where a refused produce says, and asks all nodes every 50 ms while a partition stands still"
)


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    """Measure this broker alone: the bars are absolute, and Apache Kafka's broker session lasts nine seconds."""
    with ThreeNodeCluster(bench, OURS) as trio:
        trio.create_topic(SILENT_TOPIC, PARTITIONS - WRITTEN_PARTITIONS)
        trio.create_topic(TOPIC, WRITTEN_PARTITIONS)
        ports = {node_id: server.port for node_id, server in trio.servers.items()}
        with FailoverClient(ports, TOPIC, range(WRITTEN_PARTITIONS)) as client:
            measurement = FailoverMeasurement(trio, client)
            repeat_measurement("nothing", form.rounds, lambda: measurement.measure_outage(measurement.do_nothing))
            killed = repeat_measurement(
                "leader killed", form.rounds, lambda: measurement.measure_outage(measurement.kill_node)
            )
            stopped = repeat_measurement(
                "leader stopped", form.rounds, lambda: measurement.measure_outage(measurement.stop_for_long)
            )
            fenced = sum(measurement.leaders_lost_in_stall() for _ in range(max(3, form.rounds // 2)))
            print(f"  brokers fenced by a stall of {STALL_S:.0f} s: {fenced}", flush=True)
            shutdowns = min(form.rounds, SHUTDOWNS)
            left = repeat_measurement(
                "controlled shutdown", shutdowns, lambda: measurement.measure_outage(measurement.shut_down_node)
            )
            decided = repeat_measurement("controller killed", shutdowns, measurement.controller_failover_ms)
    which = f"{PARTITIONS:,} partitions: longest time without an acknowledgement"
    return [
        Figure(f"leader killed, {which}, p99", "ms", {OURS: [p99(killed)]}, note=times_note(killed)),
        Figure(f"leader stopped by SIGSTOP, {which}, p99", "ms", {OURS: [p99(stopped)]}, note=times_note(stopped)),
        Figure(f"brokers fenced by standing still for {STALL_S:.0f} s", "brokers", {OURS: [float(fenced)]}),
        Figure(f"controlled shutdown, {which}", "ms", {OURS: [max(left)]}, note=times_note(left)),
        Figure(
            "controller killed: until another decides, p99", "ms", {OURS: [p99(decided)]}, note=spread_text(decided)
        ),
    ]


def repeat_measurement(what: str, rounds: int, once: Callable[[], float]) -> list[float]:
    """Repeat a measurement, and print each round at once, so that a later failure does not lose it."""
    began = time.monotonic()
    times = []
    for _ in range(rounds):
        times.append(once())
        print(f"  {what}: {times[-1]:.0f} ms", flush=True)
    print(f"  {what}: {spread_text(times)}; all of it took {time.monotonic() - began:.0f} s", flush=True)
    return times


def p99(times: list[float]) -> float:
    """The 99th percentile of times; of few times, the longest."""
    return sorted(times)[min(len(times) - 1, int(0.99 * len(times)))]


def spread_text(times: list[float]) -> str:
    return f"{len(times)} times, median {median(times):.0f}, p99 {p99(times):.0f}, longest {max(times):.0f} ms"


def times_note(times: list[float]) -> str:
    return f"{spread_text(times)}; {CLIENT}"


class FailoverMeasurement:
    """Measures one event at a time. Before each event all replicas are in sync."""

    def __init__(self, trio: ThreeNodeCluster, client: FailoverClient) -> None:
        self._trio = trio
        self._client = client

    def measure_outage(self, event: Callable[[int], Callable[[], None]]) -> float:
        """Let an event hit the node that leads the most partitions. Returns the longest outage of a partition (ms)."""
        self._await_in_sync()
        node_id = Counter(each.leader_id for each in self._trio.partitions(SILENT_TOPIC)).most_common(1)[0][0]
        self._client.await_all(time.monotonic())
        self._client.forget_times()
        undo = event(node_id)
        self._client.await_all(time.monotonic())
        time.sleep(0.3)
        longest_ms = 1000 * max(self._client.longest.values())
        undo()
        return longest_ms

    def do_nothing(self, node_id: int) -> Callable[[], None]:
        """Cause no event. This gives the longest time without an acknowledgement in normal operation."""
        time.sleep(1)
        return lambda: None

    def kill_node(self, node_id: int) -> Callable[[], None]:
        self._trio.running[node_id].kill()
        return lambda: self._trio.start(node_id)

    def stop_for_long(self, node_id: int) -> Callable[[], None]:
        pid = self._trio.running[node_id].pid
        os.kill(pid, signal.SIGSTOP)
        return lambda: os.kill(pid, signal.SIGCONT)

    def shut_down_node(self, node_id: int) -> Callable[[], None]:
        self._trio.running[node_id].stop()
        return lambda: self._trio.start(node_id)

    def leaders_lost_in_stall(self) -> int:
        """Suspend a node, as a stalled disk would. Returns the number of brokers that lost leaderships."""
        self._await_in_sync()
        before = self._trio.partitions(SILENT_TOPIC)
        node_id = Counter(each.leader_id for each in before).most_common(1)[0][0]
        pid = self._trio.running[node_id].pid
        os.kill(pid, signal.SIGSTOP)
        time.sleep(STALL_S)
        os.kill(pid, signal.SIGCONT)
        time.sleep(1.0)
        after = self._trio.partitions(SILENT_TOPIC, self._another(node_id))
        moved = [old.leader_id for old, new in zip(before, after, strict=True) if old.leader_id != new.leader_id]
        return len(set(moved))

    def controller_failover_ms(self) -> float:
        """Kill the active controller. Returns the time (ms) until a topic can be created again."""
        self._await_in_sync()
        controller = self._trio.controller()
        other = self._another(controller)
        began = time.monotonic()
        self._trio.running[controller].kill()
        name = f"after-{time.monotonic_ns()}"
        while True:
            try:
                self._made(name, other)
                break
            except (OSError, Unanswered):
                if time.monotonic() > began + 60:
                    raise
        took_ms = 1000 * (time.monotonic() - began)
        self._trio.start(controller)
        self._client.await_all(time.monotonic())
        return took_ms

    def _made(self, name: str, node_id: int) -> None:
        client = Client(self._trio.servers[node_id].port)
        try:
            topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
            request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
            answer = client.ask(request, CreateTopicsResponse, 5).topics[0]
        finally:
            client.close()
        if answer.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise Unanswered(f"{name}: {answer.error_message}")

    def _await_in_sync(self) -> None:
        self._trio.await_in_sync(SILENT_TOPIC, PARTITIONS - WRITTEN_PARTITIONS)
        self._trio.await_in_sync(TOPIC, WRITTEN_PARTITIONS)

    def _another(self, node_id: int) -> int:
        return next(each for each in NODES if each != node_id)
