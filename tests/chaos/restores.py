"""`python -m tests.chaos.restores`: backups at random moments under load, restored, and held against a model.

Each producer numbers its transactions. One writes its number to some partitions, and commits it as the offset of a
group; each fifth is aborted. So a restored cluster is right if it has, of each producer, the committed transactions up
to a number and no others, each in all of its partitions, and the offset of the group says the same number. It has all
that was acknowledged before the backup began, or before the time to which the restore goes back, and nothing that began
later.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Final

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from moldau.testing.cluster import Cluster
from moldau.testing.ports import free_ports

TOPIC: Final = "numbers"
PARTITIONS: Final = 4
ABORTED_EACH: Final = 5
TIMEOUT_S: Final = 60
SETTINGS: Final = {
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "group.initial.rebalance.delay.ms": 0,
    "replica.high.watermark.checkpoint.interval.ms": 100,
}
CHECKPOINTED_S: Final = 2
"""After this time (s) the directories of running nodes have what was acknowledged, at the latest."""


def partitions_of(producer: int, number: int) -> list[int]:
    """The partitions to which a transaction writes; that of the group's offset is always one of them."""
    others = [each for each in range(PARTITIONS) if each != producer]
    return [producer, *Random(f"{producer}/{number}").sample(others, number % PARTITIONS)]


def is_aborted(number: int) -> bool:
    return number % ABORTED_EACH == ABORTED_EACH - 1


@dataclass
class Numbers:
    """One producer, and when what it did was sure."""

    servers: str
    index: int
    begun: list[float] = field(default_factory=list)
    """When the end of each transaction was asked for."""
    acknowledged: list[float] = field(default_factory=list)
    """When it was acknowledged."""

    def __post_init__(self) -> None:
        reader = Consumer({"bootstrap.servers": self.servers, "group.id": f"readers-{self.index}"})
        self._group = reader.consumer_group_metadata()
        reader.close()

    def run(self, stop: Event) -> None:
        """Write until told to stop. A client that fails is replaced: librdkafka may be fenced, or hang, after the
        coordinator of a group was killed while it sent offsets (its issues 5456 and 5511)."""
        while not stop.is_set():
            client = {"bootstrap.servers": self.servers, "transactional.id": f"numbers-{self.index}", "linger.ms": 0}
            producer = Producer(client)
            try:
                producer.init_transactions(TIMEOUT_S)
                self._settle()
                while not stop.is_set():
                    self._write(producer)
            except KafkaException as problem:
                print(f"producer {self.index} is replaced: {problem}", flush=True)

    def _settle(self) -> None:
        """Find out how the transaction of the former client ended; it is done again if it was not committed."""
        if len(self.begun) > len(self.acknowledged):
            number = len(self.acknowledged)
            if is_aborted(number) or offset_of(self.servers, self.index) == number + 1:
                self.acknowledged.append(time.time())
            else:
                self.begun.pop()

    def _write(self, producer: Producer) -> None:
        number = len(self.begun)
        producer.begin_transaction()
        for partition in partitions_of(self.index, number):
            producer.produce(TOPIC, b"%d/%d" % (self.index, number), partition=partition)
        offset = TopicPartition(TOPIC, self.index, number + 1)
        producer.send_offsets_to_transaction([offset], self._group, TIMEOUT_S)
        self.begun.append(time.time())
        while True:
            try:
                (producer.abort_transaction if is_aborted(number) else producer.commit_transaction)(TIMEOUT_S)
                break
            except KafkaException as problem:
                if not problem.args[0].retriable():
                    raise
        self.acknowledged.append(time.time())


def committed_in(servers: str) -> dict[int, dict[int, set[int]]]:
    """The committed transactions that a cluster has: by producer and number, the partitions."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "check", "isolation.level": "read_committed"}
        | {"auto.offset.reset": "earliest", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(TOPIC, each, 0) for each in range(PARTITIONS)])
    found: dict[int, dict[int, set[int]]] = {}
    ended: set[int] = set()
    deadline = time.monotonic() + TIMEOUT_S
    while len(ended) < PARTITIONS and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is None:
            continue
        problem = message.error()
        if problem is not None:
            # Other errors pass: the node has just started, and a broker that is not ready is asked again.
            if problem.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition() or 0)
            continue
        index, _, number = (message.value() or b"").decode().partition("/")
        found.setdefault(int(index), {}).setdefault(int(number), set()).add(message.partition() or 0)
    consumer.close()
    assert len(ended) == PARTITIONS, "not all partitions could be read"
    return found


def offset_of(servers: str, index: int) -> int:
    """The offset of a producer's group: one more than the number of its last transaction."""
    group = f"readers-{index}"
    admin = AdminClient({"bootstrap.servers": servers})
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    partitions = asked[group].result(TIMEOUT_S).topic_partitions
    return max((each.offset for each in partitions), default=0)


def check(servers: str, numbers: list[Numbers], sure: list[int], possible: list[int]) -> None:
    """Hold a restored cluster against the model. `sure`: so many transactions of each producer had ended; `possible`:
    so many had been asked to end."""
    found = committed_in(servers)
    for each, least, most in zip(numbers, sure, possible, strict=True):
        here = found.get(each.index, {})
        for number, partitions in here.items():
            assert partitions == {*partitions_of(each.index, number)}, f"{each.index}/{number} is in {partitions} alone"
        end = max(here, default=-1) + 1
        wanted = [number for number in range(end) if not is_aborted(number)]
        assert sorted(here) == wanted, f"producer {each.index}: {sorted(here)[-8:]} of {wanted[-8:]}"
        assert offset_of(servers, each.index) == end, f"the group of {each.index} is not at {end}"
        least_end = max((number + 1 for number in range(least) if not is_aborted(number)), default=0)
        assert least_end <= end <= most, f"producer {each.index}: {end} is not between {least_end} and {most}"


class Rounds:
    """The rounds over one cluster under load."""

    def __init__(self, cluster: Cluster, place: Path, random: Random, *, from_directories: bool) -> None:
        self._servers = cluster.bootstrap_servers
        self._source = ["-b", self._servers]
        self._lag_s = 0
        """How long (s) before a backup began an acknowledged transaction is surely in it."""
        if from_directories:
            assert cluster.directory is not None
            places = [str(cluster.directory / f"node-{node.id}") for node in cluster.nodes]
            self._source, self._lag_s = ["--path", ",".join(places)], CHECKPOINTED_S
        self._cluster = cluster
        self._place = place
        self._random = random
        self._store = place / "store"
        self._store.mkdir()
        self._numbers = [Numbers(self._servers, index) for index in range(PARTITIONS - 1)]
        self._began = time.time()

    def run(self, count: int) -> None:
        """Run the rounds while the producers write."""
        stop = Event()
        writers = [Thread(target=each.run, args=(stop,), daemon=True) for each in self._numbers]
        for writer in writers:
            writer.start()
        try:
            for number in range(count):
                time.sleep(self._random.uniform(0.5, 2))
                self._round(number)
                assert all(writer.is_alive() for writer in writers), "a producer has ended"
        finally:
            stop.set()
            for writer in writers:
                writer.join(TIMEOUT_S)

    def _round(self, number: int) -> None:
        words = ["backup", str(self._store), "--keep", "3", *self._source]
        if self._random.random() < 0.3:
            self._kill_one(words)
        nodes = self._cluster.nodes
        killed = self._random.choice(nodes) if len(nodes) > 2 and self._random.random() < 0.4 else None
        if killed is not None:
            killed.kill()
        began = time.time() - self._lag_s
        sure = [sum(at < began for at in each.acknowledged) for each in self._numbers]
        moldau(*words)
        if killed is not None:
            killed.restart()
        possible = [len(each.begun) for each in self._numbers]
        target = ["--to", str(self._place / "restored"), "--single-node", "1"]
        what = "the backup"
        if self._random.random() < 0.5:
            taken = max((self._store / "backups").iterdir(), key=lambda each: each.stat().st_mtime)
            until = json.loads(taken.read_text())["began_ms"] / 1000 - self._lag_s
            moment = self._random.uniform(max(self._began, until - 20), until)
            sure = [sum(at < moment for at in each.acknowledged) for each in self._numbers]
            possible = [sum(at < moment + 0.002 for at in each.begun) for each in self._numbers]
            target += ["--at", str(int(moment * 1000)), "--backup", taken.stem]
            what = f"{time.time() - moment:.1f} s before"
        print(f"round {number + 1}: restores {what}, {' '.join(target)}", flush=True)
        moldau("restore", str(self._store), *target)
        client, controller = free_ports(2)
        command = serve_command(self._place / "restored" / "1", client, controller)
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            try:
                wait_for(f"127.0.0.1:{client}", process)
                check(f"127.0.0.1:{client}", self._numbers, sure, possible)
            finally:
                process.kill()
                process.wait(TIMEOUT_S)
        shutil.rmtree(self._place / "restored")
        with_kill = f", node {killed.id} killed" if killed is not None else ""
        print(f"round {number + 1}: {what}{with_kill}, {sum(sure)} transactions and more: as the model", flush=True)

    def _kill_one(self, words: list[str]) -> None:
        """Begin a backup, and kill it after a random time."""
        with subprocess.Popen([sys.executable, "-m", "moldau", *words], stdout=subprocess.DEVNULL) as process:
            time.sleep(self._random.uniform(0.3, 1.5))
            process.kill()


def moldau(*words: str) -> None:
    done = subprocess.run([sys.executable, "-m", "moldau", *words], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


def serve_command(data: Path, client: int, controller: int) -> list[str]:
    settings = (
        f"listeners=PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}",
        f"controller.quorum.bootstrap.servers=127.0.0.1:{controller}",
    )
    words = [word for setting in settings for word in ("--override", setting)]
    return [sys.executable, "-m", "moldau", "serve", "--data", str(data), *words]


def wait_for(servers: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until every partition has a leader."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        assert process.poll() is None, "the restored node has ended"
        try:
            topics = admin.list_topics(timeout=2).topics.values()
        except KafkaException:
            continue
        if topics and all(each.leader >= 0 for topic in topics for each in topic.partitions.values()):
            return
        time.sleep(0.1)
    raise AssertionError("the restored node does not serve")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.restores", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--from-directories", action="store_true", help="of the running nodes, not over the wire")
    options = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="moldau-restores-"))
    with Cluster(options.nodes, memory=False, settings=SETTINGS) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS)
        rounds = Rounds(cluster, place, Random(options.seed), from_directories=options.from_directories)
        try:
            rounds.run(options.rounds)
        except AssertionError:
            print(f"the store and what was restored are kept in {place}", flush=True)
            raise
    shutil.rmtree(place)
    print(f"{options.rounds} rounds: each restored cluster is as the model")
    return 0


if __name__ == "__main__":
    sys.exit(main())
