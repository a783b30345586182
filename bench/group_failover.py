"""Three nodes, a group's coordinator killed: how long until its consumer reads and commits again."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Final

from bench.failover import p99, repeat_measurement, spread_text
from bench.figures import OURS, Figure
from bench.groups import RunForm
from bench.subjects import Bench
from bench.trio import ThreeNodeCluster
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

TOPIC: Final = "followed"
GROUP: Final = "followers"
PARTITIONS: Final = 6
PAUSE_S: Final = 0.01
"""The time between two records of one partition."""
COMMITTED_S: Final = 0.1
"""The interval between the commits of the consumer."""
PATIENCE_S: Final = 60.0
SETTLED_S: Final = 2.0
ROUNDS_MAX: Final = 10
NOTE: Final = "a consumer of librdkafka with its defaults; until all partitions are read and commits are acknowledged"


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    """Measure this broker alone, because the bar is absolute."""
    with ThreeNodeCluster(bench, OURS) as trio:
        trio.create_topic(TOPIC, PARTITIONS)
        addresses = ",".join(f"127.0.0.1:{server.port}" for server in trio.servers.values())
        writer, follower = RecordWriter(addresses), GroupConsumer(addresses)
        writer.start()
        follower.start()
        try:
            follower.await_all(time.monotonic())
            rounds = min(form.rounds, ROUNDS_MAX)
            times = repeat_measurement("coordinator killed", rounds, lambda: _outage(trio, follower))
        finally:
            for thread in (writer, follower):
                thread.is_ending = True
                thread.join(30)
    print(f"  {follower.commits_count} commits acknowledged, {follower.lost_count} of them lost", flush=True)
    lost = float(follower.lost_count)
    return [
        Figure("coordinator killed: until its group goes on, p99", "ms", {OURS: [p99(times)]}, note=_note(times)),
        Figure("coordinator killed: committed offsets lost", "offsets", {OURS: [lost]}),
    ]


def _note(times: list[float]) -> str:
    return f"{spread_text(times)}; {NOTE}"


def _outage(trio: ThreeNodeCluster, follower: GroupConsumer) -> float:
    """Kill the group's coordinator, and return the outage (ms)."""
    trio.await_in_sync(TOPIC, PARTITIONS)
    time.sleep(SETTLED_S)
    follower.await_all(time.monotonic())
    node_id = _coordinator(trio)
    began = time.monotonic()
    trio.running[node_id].kill()
    ended = follower.await_all(began)
    follower.count_lost_offsets()
    trio.start(node_id)
    return 1000 * (ended - began)


def _coordinator(trio: ThreeNodeCluster) -> int:
    client = trio.client()
    try:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP])
        return client.ask(request, FindCoordinatorResponse, 4).coordinators[0].node_id
    finally:
        client.close()


class RecordWriter(threading.Thread):
    """Produces a record to each partition at intervals, until it is stopped."""

    def __init__(self, addresses: str) -> None:
        super().__init__(daemon=True)
        self.is_ending = False
        self._addresses = addresses

    def run(self) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self._addresses, "enable.idempotence": True, "log_level": 2})
        while not self.is_ending:
            for partition in range(PARTITIONS):
                # The time of sending lets the reader tell what was sent after a kill.
                producer.produce(TOPIC, str(time.monotonic()).encode(), partition=partition)
            producer.poll(PAUSE_S)
        producer.flush(30)


class GroupConsumer(threading.Thread):
    """The only member of the group."""

    def __init__(self, addresses: str) -> None:
        from confluent_kafka import Consumer

        super().__init__(daemon=True)
        self.is_ending = False
        self.commits_count = 0
        self.lost_count = 0
        self._sent_at = dict.fromkeys(range(PARTITIONS), 0.0)
        """The time at which the last record that has been read was sent, by partition."""
        self._committed: dict[int, int] = {}
        """The last offset whose commit was acknowledged, by partition."""
        self._committed_at = 0.0
        """The time at which the last acknowledged commit was requested."""
        self._asked_at = 0.0
        self._to_look = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": addresses,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "on_commit": self._acknowledged,
                "log_level": 2,
            }
        )

    def await_all(self, since: float) -> float:
        """Wait until records of every partition that were sent after `since` are read, and a commit of them is
        acknowledged. Returns the time then (s, of the monotonic clock)."""
        deadline = time.monotonic() + PATIENCE_S
        while min(*self._sent_at.values(), self._committed_at) <= since:
            if time.monotonic() > deadline:
                behind = [partition for partition, at in self._sent_at.items() if at <= since]
                commits = "commits are not acknowledged" if self._committed_at <= since else "commits are"
                raise TimeoutError(f"after {PATIENCE_S:.0f} s partitions {behind} are not read, {commits}")
            time.sleep(0.002)
        return time.monotonic()

    def count_lost_offsets(self) -> None:
        """Count the partitions whose committed offset is lower than the one that was acknowledged."""
        self._to_look.set()
        deadline = time.monotonic() + PATIENCE_S
        while self._to_look.is_set() and time.monotonic() < deadline:
            time.sleep(0.002)

    def run(self) -> None:
        self._consumer.subscribe([TOPIC])
        has_read = False
        while not self.is_ending:
            for message in self._consumer.consume(500, 0.01):
                partition, value = message.partition(), message.value()
                if message.error() is None and partition is not None and value is not None:
                    self._sent_at[partition] = float(value)
                    has_read = True
            if has_read and time.monotonic() >= self._asked_at + COMMITTED_S:
                self._asked_at = time.monotonic()
                self._consumer.commit(asynchronous=True)
                has_read = False
            if self._to_look.is_set():
                self._look()
                self._to_look.clear()
        self._consumer.close()

    def _acknowledged(self, error: object, partitions: Sequence[object]) -> None:
        from confluent_kafka import TopicPartition

        told = [each for each in partitions if isinstance(each, TopicPartition) and each.error is None]
        if error is not None or not told:
            return
        self._committed_at = self._asked_at
        for each in told:
            if each.offset >= 0:
                self.commits_count += 1
                self._committed[each.partition] = max(self._committed.get(each.partition, 0), each.offset)

    def _look(self) -> None:
        from confluent_kafka import TopicPartition

        before = dict(self._committed)
        found = self._consumer.committed([TopicPartition(TOPIC, partition) for partition in before], 10)
        self.lost_count += sum(each.offset < before[each.partition] for each in found)
