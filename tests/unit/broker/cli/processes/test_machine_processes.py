"""`moldau serve --cores` as real processes: one dies and comes back alone, two become three and two again with the same
records, and two machines are a cluster of which one may be lost.
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
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]

from moldau.testing.ports import free_ports

ROOT = Path(__file__).parents[5]
PATIENCE_S = 90
TOPIC = "orders"
RECORDS = 300
PARTITIONS = 9


CLUSTER_ID = "vJ2tYzvfRWa7zGbXzCxUgw"


def of_file(file: Path, settings: dict[str, str], quorum: list[str] | None = None) -> Running:
    """The processes of a machine that a file describes, formatted by it."""
    file.write_text("".join(f"{name}={text}\n" for name, text in settings.items()))
    command = [sys.executable, "-m", "moldau.broker.cli", "format", "-c", str(file), "-t", CLUSTER_ID]
    subprocess.run([*command, *(quorum or [])], cwd=ROOT, check=True, capture_output=True)
    return Running([str(file)], file.with_suffix(".log"))


def without_file(data: Path, port: int, cores: int) -> Running:
    """The processes of a machine that formats itself, all at ports of its ten from `port` on."""
    listeners = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{port + 8}"
    settings = {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{port + 8}",
        "moldau.http.listener": f"http://127.0.0.1:{port + 9}",
    }
    overrides = [word for name, text in settings.items() for word in ("--override", f"{name}={text}")]
    return Running(["--data", str(data), "--cores", str(cores), *overrides], data.parent / "log", port + 9)


class Running:
    """A machine's processes, under their supervisor."""

    def __init__(self, words: list[str], log: Path, http_port: int = 0) -> None:
        command = [sys.executable, "-m", "moldau.broker.cli", "serve", *words, "--greeting", "json", "--until-eof"]
        self.http_port = http_port
        self.log = log
        with self.log.open("a") as stream:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
                text=True,
                env=os.environ,
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
        connection = HTTPConnection("127.0.0.1", self.http_port, timeout=PATIENCE_S)
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
    with without_file(data, port, 2) as machine:
        assert [(each["node_id"], each["formatted"]) for each in machine.greeting["cores"]] == [(1, True), (2, True)]
        admin = AdminClient({"bootstrap.servers": machine.address})
        for future in admin.create_topics([NewTopic(TOPIC, 6, 1)]).values():
            future.result(30)
        machine.wait_for(lambda: set(leaders(machine.address).values()) == {1, 2})
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
    with without_file(data, port, 3) as machine:
        assert [each["formatted"] for each in machine.greeting["cores"]] == [False, False, True]
        found = [each["recovered"]["was_clean"] for each in machine.greeting["cores"][:2]]
        assert found == [True, True], "SIGTERM stopped both cleanly"
        admin = AdminClient({"bootstrap.servers": machine.address})
        for future in admin.create_partitions([NewPartitions(TOPIC, PARTITIONS)]).values():
            future.result(30)
        machine.wait_for(lambda: set(leaders(machine.address).values()) == {1, 2, 3})
        produce(machine.address, range(RECORDS, 2 * RECORDS))
        machine.stop()
    with without_file(data, port, 2) as machine:
        machine.wait_for(lambda: machine.says("node 3 has left the cluster"))
        assert not (data / "core.3").exists()
        assert set(leaders(machine.address).values()) == {1, 2}
        assert consume(machine.address, 2 * RECORDS) == list(range(2 * RECORDS))
        machine.stop()


@pytest.mark.processes
def test_two_machines_share_replicas_and_one_of_them_may_be_lost(tmp_path: Path) -> None:
    ports = free_ports(8)
    quorum = f"127.0.0.1:{ports[2]}"
    common = {
        "controller.quorum.bootstrap.servers": quorum,
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "offsets.topic.replication.factor": "2",
        "moldau.cores": "2",
    }
    first = common | {
        "process.roles": "broker,controller",
        "node.id": "10",
        "listeners": f"PLAINTEXT://127.0.0.1:{ports[0]},CONTROLLER://{quorum}",
        "broker.rack": "machine-a",
        "log.dirs": str(tmp_path / "a"),
    }
    second = common | {
        "process.roles": "broker",
        "node.id": "20",
        "listeners": f"PLAINTEXT://127.0.0.1:{ports[4]}",
        "broker.rack": "machine-b",
        "log.dirs": str(tmp_path / "b"),
    }
    address = f"127.0.0.1:{ports[0]}"
    with (
        of_file(tmp_path / "a.properties", first, ["--standalone"]) as a,
        of_file(tmp_path / "b.properties", second) as b,
    ):
        admin = AdminClient({"bootstrap.servers": address})
        with pytest.raises(KafkaException, match="in 2 rack"):
            admin.create_topics([NewTopic("three", 1, 3)])["three"].result(30)
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 2)])[TOPIC].result(30)
        a.wait_for(lambda: set(leaders(address).values()) == {10, 11, 20, 21})
        partitions = admin.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions.values()
        assert all(sorted(node_id // 10 for node_id in each.replicas) == [1, 2] for each in partitions)
        produce(address, range(RECORDS))
        for pid in (b.process.pid, b.process_of(20), b.process_of(21)):
            os.kill(pid, signal.SIGKILL)
        b.process.wait()
        a.wait_for(lambda: set(leaders(address).values()) == {10, 11})
        assert consume(address, RECORDS) == list(range(RECORDS))
        assert a.process.stdin is not None
        a.process.stdin.close()
        assert a.process.wait(PATIENCE_S) == 0, "the end of the input stops it too"
