"""Three nodes, 1,000 partitions, defaults: how long partitions stand still when a node is lost, stops or leaves."""

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
from bench.groups import Form
from bench.subjects import Bench
from bench.trio import NODES, Trio
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

TOPIC: Final = "failover"
WRITTEN: Final = 30
"""Partitions that get records while a node is lost, over all leaders; in a topic of their own, so that clients who ask
who leads do not make the load."""
SILENT_TOPIC: Final = "silent"
PARTITIONS: Final = 1000
"""All together."""
STALL_S: Final = 2.0
SHUTDOWNS: Final = 10
CLIENT: Final = (
    "a client that goes where a refused produce says, and asks all nodes every 50 ms while a partition stands still"
)


def measure(bench: Bench, form: Form) -> list[Figure]:
    """Only ours: the bars are absolute, and Apache Kafka's session is nine seconds."""
    with Trio(bench, OURS) as trio:
        trio.create_topic(SILENT_TOPIC, PARTITIONS - WRITTEN)
        trio.create_topic(TOPIC, WRITTEN)
        ports = {node_id: server.port for node_id, server in trio.servers.items()}
        with FailoverClient(ports, TOPIC, range(WRITTEN)) as client:
            measurement = Measurement(trio, client)
            repeated("nothing", form.rounds, lambda: measurement.outage(measurement.do_nothing))
            killed = repeated("leader killed", form.rounds, lambda: measurement.outage(measurement.kill))
            stopped = repeated("leader stopped", form.rounds, lambda: measurement.outage(measurement.stop_for_long))
            fenced = sum(measurement.stall() for _ in range(max(3, form.rounds // 2)))
            print(f"  brokers fenced by a stall of {STALL_S:.0f} s: {fenced}", flush=True)
            shutdowns = min(form.rounds, SHUTDOWNS)
            left = repeated("controlled shutdown", shutdowns, lambda: measurement.outage(measurement.leave))
            decided = repeated("controller killed", shutdowns, measurement.controller_failover)
    which = f"{PARTITIONS:,} partitions: longest time without an acknowledgement"
    return [
        Figure(f"leader killed, {which}, p99", "ms", {OURS: [p99(killed)]}, note=note_of(killed)),
        Figure(f"leader stopped by SIGSTOP, {which}, p99", "ms", {OURS: [p99(stopped)]}, note=note_of(stopped)),
        Figure(f"brokers fenced by standing still for {STALL_S:.0f} s", "brokers", {OURS: [float(fenced)]}),
        Figure(f"controlled shutdown, {which}", "ms", {OURS: [max(left)]}, note=note_of(left)),
        Figure("controller killed: until another decides, p99", "ms", {OURS: [p99(decided)]}, note=spread_of(decided)),
    ]


def repeated(what: str, rounds: int, once: Callable[[], float]) -> list[float]:
    """Each round is said at once: what is measured survives a later one that fails."""
    began = time.monotonic()
    times = []
    for _ in range(rounds):
        times.append(once())
        print(f"  {what}: {times[-1]:.0f} ms", flush=True)
    print(f"  {what}: {spread_of(times)}; all of it took {time.monotonic() - began:.0f} s", flush=True)
    return times


def p99(times: list[float]) -> float:
    """Of few, the longest."""
    return sorted(times)[min(len(times) - 1, int(0.99 * len(times)))]


def spread_of(times: list[float]) -> str:
    return f"{len(times)} times, median {median(times):.0f}, p99 {p99(times):.0f}, longest {max(times):.0f} ms"


def note_of(times: list[float]) -> str:
    return f"{spread_of(times)}; {CLIENT}"


class Measurement:
    """One event at a time; before each, all replicas are in sync."""

    def __init__(self, trio: Trio, client: FailoverClient) -> None:
        self._trio = trio
        self._client = client

    def outage(self, event: Callable[[int], Callable[[], None]]) -> float:
        """The event strikes the node that leads most; milliseconds, of the partition that stood still longest."""
        self._await_in_sync()
        node_id = Counter(each.leader_id for each in self._trio.partitions(SILENT_TOPIC)).most_common(1)[0][0]
        self._client.await_all(time.monotonic())
        self._client.forget()
        undo = event(node_id)
        self._client.await_all(time.monotonic())
        time.sleep(0.3)
        longest_ms = 1000 * max(self._client.longest.values())
        undo()
        return longest_ms

    def do_nothing(self, node_id: int) -> Callable[[], None]:
        """How long a partition goes without an acknowledgement on this machine as it is."""
        time.sleep(1)
        return lambda: None

    def kill(self, node_id: int) -> Callable[[], None]:
        self._trio.running[node_id].kill()
        return lambda: self._trio.start(node_id)

    def stop_for_long(self, node_id: int) -> Callable[[], None]:
        pid = self._trio.running[node_id].pid
        os.kill(pid, signal.SIGSTOP)
        return lambda: os.kill(pid, signal.SIGCONT)

    def leave(self, node_id: int) -> Callable[[], None]:
        self._trio.running[node_id].stop()
        return lambda: self._trio.start(node_id)

    def stall(self) -> int:
        """A node stands still, as one does whose disk does; how many brokers lost their leadership for it."""
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

    def controller_failover(self) -> float:
        """Milliseconds until a topic could be made."""
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
        self._trio.await_in_sync(SILENT_TOPIC, PARTITIONS - WRITTEN)
        self._trio.await_in_sync(TOPIC, WRITTEN)

    def _another(self, node_id: int) -> int:
        return next(each for each in NODES if each != node_id)
