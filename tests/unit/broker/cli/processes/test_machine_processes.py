"""`moldau serve --cores` as real processes: one dies and comes back alone, and two become three and two again with the
same records.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]

from moldau.testing.ports import free_ports

ROOT = Path(__file__).parents[5]
PATIENCE_S = 90
TOPIC = "orders"
RECORDS = 300
PARTITIONS = 9


class Running:
    """A machine's processes, under their supervisor."""

    def __init__(self, data: Path, port: int, cores: int) -> None:
        command = [sys.executable, "-m", "moldau.broker.cli", "serve", "--data", str(data), "--port", str(port)]
        command += ["--cores", str(cores), "--greeting", "json", "--until-eof"]
        command += ["--override", f"moldau.http.listener=http://127.0.0.1:{port + 9}"]
        self.port = port
        self.log = data.parent / "log"
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=os.environ
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        self.greeting = json.loads(line)
        self.address = self.greeting["listeners"]["PLAINTEXT"]

    def wait_for(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < deadline, self.log.read_text()
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.1)

    def http(self, path: str) -> tuple[int, str]:
        """The response of the one HTTP listener."""
        connection = HTTPConnection("127.0.0.1", self.port + 9, timeout=PATIENCE_S)
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()

    def says(self, text: str) -> bool:
        return text in self.log.read_text()

    def process_of(self, node_id: int) -> int:
        """The process id of a node."""
        for children in Path(f"/proc/{self.process.pid}/task").glob("*/children"):
            for pid in map(int, children.read_text().split()):
                if Path(f"/proc/{pid}/cmdline").read_text().split("\0")[-2] == f"node-{node_id}":
                    return pid
        raise AssertionError(f"no process of node {node_id}")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE_S) == 0, self.log.read_text()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *problem: object) -> None:
        if self.process.poll() is None:
            self.process.kill()  # The pipes close, and the nodes stop.
            self.process.wait()


def leaders(address: str) -> dict[int, int]:
    """The leader of each partition of the topic."""
    topic = AdminClient({"bootstrap.servers": address}).list_topics(TOPIC, timeout=30).topics[TOPIC]
    return {index: partition.leader for index, partition in topic.partitions.items()}


def produce(address: str, values: range, partitions: int = PARTITIONS) -> None:
    producer = Producer({"bootstrap.servers": address, "acks": "all"})
    for value in values:
        producer.produce(TOPIC, str(value), partition=value % partitions)
    assert producer.flush(PATIENCE_S) == 0


def consume(address: str, count: int) -> list[int]:
    """So many records of all partitions, from the first on, sorted."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, index, 0) for index in leaders(address)])
    found: list[int] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < deadline:
        found += [int(message.value() or b"") for message in consumer.consume(100, 1.0) if message.error() is None]
    consumer.close()
    return sorted(found)


@pytest.mark.processes
def test_a_process_that_is_killed_comes_back_alone_and_two_become_three_and_two_again(tmp_path: Path) -> None:
    data, port = tmp_path / "data", free_ports(10)[0]
    with Running(data, port, 2) as machine:
        assert [each["node_id"] for each in machine.greeting["cores"]] == [1, 2]
        admin = AdminClient({"bootstrap.servers": machine.address})
        for future in admin.create_topics([NewTopic(TOPIC, 6, 1)]).values():
            future.result(30)
        assert set(leaders(machine.address).values()) == {1, 2}
        produce(machine.address, range(RECORDS), 6)
        assert machine.http("/readyz") == (200, "ok\n")
        assert "kafka_server_brokertopicmetrics_messagesin_total 300\n" in machine.http("/metrics")[1]
        each = machine.http("/metrics/brokers")[1]
        assert all(f'kafka_server_replicamanager_leadercount{{broker="{node_id}"}} 3\n' in each for node_id in (1, 2))
        first, second = machine.process_of(1), machine.process_of(2)
        os.kill(second, signal.SIGKILL)
        assert machine.http("/readyz")[0] == 503 and 'moldau_core_up{broker="2"} 0' in machine.http("/metrics")[1]
        machine.wait_for(lambda: machine.says("node 2 serves again"))
        assert machine.says("node 2 was ended by SIGKILL; it is started again in 0.5 s")
        assert machine.process_of(1) == first and machine.process_of(2) != second
        assert consume(machine.address, RECORDS) == list(range(RECORDS))
        machine.stop()
    with Running(data, port, 3) as machine:
        admin = AdminClient({"bootstrap.servers": machine.address})
        for future in admin.create_partitions([NewPartitions(TOPIC, PARTITIONS)]).values():
            future.result(30)
        assert set(leaders(machine.address).values()) == {1, 2, 3}
        produce(machine.address, range(RECORDS, 2 * RECORDS))
        machine.stop()
    with Running(data, port, 2) as machine:
        machine.wait_for(lambda: machine.says("node 3 has left the cluster"))
        assert not (data / "core.3").exists()
        assert set(leaders(machine.address).values()) == {1, 2}
        assert consume(machine.address, 2 * RECORDS) == list(range(2 * RECORDS))
        machine.stop()
