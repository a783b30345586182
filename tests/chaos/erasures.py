"""`python -m tests.chaos.erasures`: records are erased from a tiered topic while brokers are killed, against a model.

One producer writes records of persons before each round, another one writes all the time. A round erases one person
while a broker is killed, at times a second one later, at times the command itself. When all brokers are back, the
command runs again until it finds nothing, and each of its receipts is verified: in the logs of every replica, and in
the objects of remote storage. At last a consumer reads the topic from its first offset, most of it from remote
storage: what was acknowledged is at its offset unless it is of an erased person, and nothing is there of these.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Final

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from moldau.testing.cluster import Cluster

TOPIC: Final = "persons"
PARTITIONS: Final = 3
PERSONS: Final = 40
RECORDS_A_ROUND: Final = 3_000
VALUE_SIZE: Final = 1_000
TIMEOUT_S: Final = 120
VERIFIED_S_MAX: Final = 180
"""How long orders may take to be carried out once all brokers are back."""
OTHER: Final = b"other"
"""The key of the records that are written all the time; they are never erased."""
SETTINGS: Final = {
    "moldau.erase.enable": "true",
    "remote.log.storage.system.enable": "true",
    "remote.log.manager.task.interval.ms": 500,
    "log.retention.check.interval.ms": 1_000,
    "log.initial.task.delay.ms": 500,
    "offsets.topic.num.partitions": 3,
}
CONFIG: Final = {
    "remote.storage.enable": "true",
    "segment.bytes": str(1 << 20),
    "local.retention.bytes": str(1 << 20),
    "min.insync.replicas": "2",
}
Place = tuple[int, int]
"""A partition and an offset."""


class Written:
    """What was acknowledged, by its place."""

    def __init__(self, servers: str) -> None:
        self.records: dict[Place, tuple[bytes, bytes]] = {}
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 2})

    def write(self, key: bytes, value: bytes) -> None:
        while True:
            try:
                self._producer.produce(TOPIC, value, key, on_delivery=self._delivered)
                break
            except BufferError:
                self._producer.poll(0.1)
        self._producer.poll(0)

    def flush(self) -> None:
        left = self._producer.flush(TIMEOUT_S)
        assert not left, f"{left} records were not acknowledged"

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        place = message.partition(), message.offset()
        assert None not in place and place not in self.records, place
        self.records[place] = message.key() or b"", message.value() or b""  # type: ignore[index]


class Rounds:
    """The rounds over one cluster."""

    def __init__(self, cluster: Cluster, storage: str, place: Path, random: Random) -> None:
        self._cluster = cluster
        self._servers = cluster.bootstrap_servers
        self._storage = storage
        self._place = place
        self._random = random
        self._persons = Written(self._servers)
        self._others = Written(self._servers)
        self._remaining = [b"person-%d" % number for number in range(PERSONS)]
        self._erased: list[bytes] = []

    def run(self, count: int) -> None:
        """Run the rounds while other records are written."""
        stop = Event()
        writer = Thread(target=self._write_others, args=(stop,), daemon=True)
        writer.start()
        try:
            for number in range(count):
                self._round(number)
                assert writer.is_alive(), "the producer of other records has ended"
        finally:
            stop.set()
            writer.join(TIMEOUT_S)
        self._others.flush()
        self._check()

    def _write_others(self, stop: Event) -> None:
        number = 0
        while not stop.wait(0.005):
            self._others.write(OTHER, b"%0*d" % (VALUE_SIZE, number))
            number += 1

    def _round(self, number: int) -> None:
        for each in range(RECORDS_A_ROUND):
            self._persons.write(self._random.choice(self._remaining), b"%d/%0*d" % (number, VALUE_SIZE, each))
        self._persons.flush()
        time.sleep(self._random.uniform(0, 3))  # Some segments are copied before the order, some after it.
        person = self._remaining.pop(self._random.randrange(len(self._remaining)))
        receipts = [self._place / f"{number}-0.json"]
        killed = self._erase_under_kills(person, receipts[0])
        attempts = 1
        while self._has_any(person):
            receipts.append(self._place / f"{number}-{attempts}.json")
            self._moldau("erase", TOPIC, "--key", person.decode(), "--execute", "--receipt", str(receipts[-1]))
            attempts += 1
            assert attempts < 5, f"{person!r} is found again and again"
        self._erased.append(person)
        for receipt in receipts:
            if receipt.exists():
                self._verify(receipt, person)
        print(f"round {number + 1}: {person.decode()} erased, killed: {killed}; {attempts} runs", flush=True)

    def _erase_under_kills(self, person: bytes, receipt: Path) -> str:
        """Begin an erasure, kill, and start again what was killed. Returns what was."""
        words = ["erase", TOPIC, "--key", person.decode(), "--execute", "--receipt", str(receipt)]
        killed = []
        with subprocess.Popen(self._command(*words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            for node in self._random.sample(self._cluster.nodes, self._random.choice((1, 1, 2))):
                time.sleep(self._random.uniform(0.2, 3))
                node.kill()
                killed.append(f"broker {node.id}")
                time.sleep(self._random.uniform(0, 3))
                node.restart()
            if self._random.random() < 0.3:
                process.kill()
                killed.append("the command")
            process.wait(2 * VERIFIED_S_MAX)
        return ", ".join(killed)

    def _has_any(self, person: bytes) -> bool:
        """Whether a dry run finds records of a person."""
        return "would be erased" in self._moldau("erase", TOPIC, "--key", person.decode()).stdout

    def _verify(self, receipt: Path, person: bytes) -> None:
        words = ["erase", "--verify", str(receipt), "--key", person.decode(), "--storage", self._storage]
        deadline = time.monotonic() + VERIFIED_S_MAX
        while True:
            done = self._moldau(*words, may_fail=True)
            if done.returncode == 0:
                return
            assert time.monotonic() < deadline, f"{receipt}: {done.stdout}{done.stderr}"
            time.sleep(1)

    def _moldau(self, *words: str, may_fail: bool = False) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(self._command(*words), capture_output=True, text=True, timeout=600)
        assert may_fail or done.returncode in (0, 1), f"{words}: {done.stderr}"
        return done

    def _command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "moldau", *words, "-b", self._servers]

    def _check(self) -> None:
        """Hold what a consumer reads from the first offset on against the model."""
        written = self._persons.records | self._others.records
        wanted = {place: record for place, record in written.items() if record[0] not in self._erased}
        found = read_all(self._servers)
        missing = sorted(wanted.keys() - found.keys())
        assert not missing, f"{len(missing)} records are missing, the first at {missing[:3]}"
        other = [place for place, record in wanted.items() if found[place] != record]
        assert not other, f"other records are at {other[:3]}"
        more = sorted(found.keys() - wanted.keys())
        assert not more, f"{len(more)} records should not be there, the first at {more[:3]}: {found[more[0]][0]!r}"
        print(f"{len(wanted):,} of {len(written):,} records are there, and no others", flush=True)


def read_all(servers: str) -> dict[Place, tuple[bytes, bytes]]:
    """All records of the topic, by place."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "check", "enable.partition.eof": True, "log_level": 2}
    )
    consumer.assign([TopicPartition(TOPIC, each, 0) for each in range(PARTITIONS)])
    found: dict[Place, tuple[bytes, bytes]] = {}
    ended: set[int] = set()
    deadline = time.monotonic() + TIMEOUT_S
    while len(ended) < PARTITIONS:
        assert time.monotonic() < deadline, f"only the partitions {ended} could be read"
        message = consumer.poll(1)
        if message is None:
            continue
        problem, partition = message.error(), message.partition() or 0
        if problem is None:
            found[partition, message.offset() or 0] = message.key() or b"", message.value() or b""
        elif problem.code() == KafkaError._PARTITION_EOF:
            ended.add(partition)
    consumer.close()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.erasures", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--storage", help="instead of a directory, the URL of an object store")
    parser.add_argument("--endpoint", help="of an S3-compatible store; its credentials are in the environment")
    options = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="moldau-erasures-"))
    (place / "tier").mkdir()
    storage = options.storage or str(place / "tier")
    settings = {**SETTINGS, "moldau.tiered.storage": storage}
    if options.endpoint:
        settings["moldau.tiered.storage.endpoint"] = options.endpoint
    with Cluster(3, memory=False, settings=settings) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS, settings=CONFIG)
        rounds = Rounds(cluster, storage, place, Random(options.seed))
        try:
            rounds.run(min(options.rounds, PERSONS - 1))
        except AssertionError:
            print(f"receipts and remote storage are kept in {place}", flush=True)
            raise
    shutil.rmtree(place)
    print(f"{options.rounds} rounds: erased, and everything else is there")
    return 0


if __name__ == "__main__":
    sys.exit(main())
