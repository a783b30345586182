"""Holds the same quotas and the same client against Moldau and Apache Kafka: throttle times, and the rates achieved.

    python -m tests.conformance.quota_throttling [case...]

It needs Java and Apache Kafka's jars, as `make conformance` does. Quotas are set with kafka-configs of its
distribution. For each case it prints what both brokers did; it ends with status 1 if they differ by more than the
case allows. A case is a few requests of known size, one after another as soon as the answer is there, so that throttle
times follow from the windows alone.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from moldau.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.record_builder import Record, build_batch
from tests.conformance.brokers import Apache, Broker, Moldau, Ports
from tests.conformance.raw_connection import Connection
from tests.conformance.toolbox import Toolbox
from tests.conformance.toolchain import Toolchain

PROPAGATION_S: Final = 1.0
"""Until a quota that was set is surely in force."""
TOLERANCE_MS: Final = 150
"""Times depend on when a request is handled within a window."""
SIZE: Final = 10_000


class Answer(NamedTuple):
    """What a client saw of one request."""

    throttle_ms: int
    muted_ms: float
    """How long the next request of the connection waited for its answer."""


class Subject(NamedTuple):
    """One broker, and Apache Kafka's tools to set its quotas with."""

    broker: Broker
    box: Toolbox
    port: int

    @contextmanager
    def quota(self, key: str, value: float, *entity: str) -> Iterator[None]:
        self.box.run("kafka-configs", "--alter", "--add-config", f"{key}={value}", *entity)
        time.sleep(PROPAGATION_S)
        try:
            yield
        finally:
            self.box.run("kafka-configs", "--alter", "--delete-config", key, *entity)
            time.sleep(PROPAGATION_S)

    def client(self, client_id: str) -> Connection:
        return Connection(self.port, client_id)


def throttled(connection: Connection, request: object, version: int) -> Answer:
    """Ask, then see how long the connection is muted."""
    told = getattr(connection.ask(request, version), "throttle_time_ms", 0)
    began_s = time.monotonic()
    connection.answers()
    return Answer(told, (time.monotonic() - began_s) * 1000)


def records() -> bytes:
    return build_batch([Record(key=b"", value=b"x" * SIZE, timestamp=1000)])


def topic_of(subject: Subject, name: str) -> str:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    subject.client("maker").ask(CreateTopicsRequest(topics=[topic]), 5)
    time.sleep(PROPAGATION_S)
    return name


def produce_to(topic: str, acks: int = -1) -> ProduceRequest:
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records())])
    return ProduceRequest(transactional_id=None, acks=acks, timeout_ms=10_000, topic_data=[data])


def fetch_of(topic: str) -> FetchRequest:
    wish = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=SIZE)
    return FetchRequest(
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic=topic, partitions=[wish])],
        session_epoch=-1,
    )


def series(subject: Subject, client_id: str, request: object, version: int, count: int) -> list[Answer]:
    connection = subject.client(client_id)
    return [throttled(connection, request, version) for _ in range(count)]


def produces(*entity: str, client_id: str = "app") -> Callable[[Subject], list[Answer]]:
    """Ten kilobytes each: a rate of 3,000 bytes a second allows three of them in ten seconds."""

    def run(subject: Subject) -> list[Answer]:
        topic = topic_of(subject, f"produce-{client_id}")
        with subject.quota("producer_byte_rate", 3000, *entity):
            return series(subject, client_id, produce_to(topic), 9, 5)

    return run


def fetches(subject: Subject) -> list[Answer]:
    topic = topic_of(subject, "fetched")
    subject.client("maker").ask(produce_to(topic), 9)
    with subject.quota("consumer_byte_rate", 3000, *CLIENT, "reader"):
        return series(subject, "reader", fetch_of(topic), 12, 6)


def request_times(subject: Subject) -> list[Answer]:
    """The time that a request takes differs between brokers and machines. So one quota is less than any request takes,
    and each is throttled for the longest time, that of one window; the other one is more than any client can use.
    """
    topic = topic_of(subject, "timed")
    with subject.quota("request_percentage", 0.0001, *CLIENT, "slow"):
        answers = series(subject, "slow", produce_to(topic), 9, 4)
        answers += series(subject, "slow", fetch_of(topic), 12, 2)
    with subject.quota("request_percentage", 100_000, *CLIENT, "slow"):
        time.sleep(12)  # the requests before have left the windows
        answers += series(subject, "slow", produce_to(topic), 9, 4)
    return answers


def mutations(subject: Subject) -> list[Answer]:
    """A bucket of eleven partitions: debts of three, then refusals, then an older client."""
    with subject.quota("controller_mutation_rate", 1, *CLIENT, "maker-2"):
        connection = subject.client("maker-2")

        def create(name: str, count: int, version: int = 7) -> Answer:
            topic = CreatableTopic(name=name, num_partitions=count, replication_factor=1)
            return throttled(connection, CreateTopicsRequest(topics=[topic]), version)

        grown = CreatePartitionsTopic(name="m1", count=14, assignments=None)
        answers = [create("m1", 12), create("m2", 1), create("m2", 1)]
        request = CreatePartitionsRequest(topics=[grown], timeout_ms=10_000, validate_only=False)
        answers.append(throttled(connection, request, 3))
        answers.append(throttled(connection, request, 3))
        answers.append(create("m3", 2, version=5))
        answers.append(throttled(connection, DeleteTopicsRequest(topic_names=["m1"], timeout_ms=10_000), 5))
        return answers


def connections(subject: Subject) -> list[Answer]:
    """One a second: the eleventh within a second is one too many. Told here: how long each waited, and 1 for one that
    was closed without an answer."""
    with subject.quota("connection_creation_rate", 2, "--entity-type", "ips", "--entity-name", "127.0.0.1"):
        time.sleep(12)  # those of the tool have left the windows
        answers = []
        for _ in range(26):
            began_s = time.monotonic()
            is_served = subject.client("many").answers()
            answers.append(Answer(0 if is_served else 1, (time.monotonic() - began_s) * 1000))
        return answers


CLIENT: Final = ("--entity-type", "clients", "--entity-name")
CASES: Final[dict[str, Callable[[Subject], list[Answer]]]] = {
    "producer_byte_rate of a client id": produces(*CLIENT, "app"),
    "producer_byte_rate of the default client id": produces("--entity-type", "clients", "--entity-default"),
    "producer_byte_rate of a user": produces("--entity-type", "users", "--entity-name", "ANONYMOUS"),
    "consumer_byte_rate": fetches,
    "request_percentage": request_times,
    "controller_mutation_rate": mutations,
    "connection_creation_rate": connections,
}


def is_alike(ours: list[Answer], theirs: list[Answer]) -> bool:
    """Each throttle time within the tolerance, and so the time that all requests took."""
    close = [abs(a.throttle_ms - b.throttle_ms) <= TOLERANCE_MS for a, b in zip(ours, theirs, strict=True)]
    took = abs(sum(each.muted_ms for each in ours) - sum(each.muted_ms for each in theirs))
    return all(close) and took <= TOLERANCE_MS * len(ours)


def told(answers: list[Answer]) -> str:
    return " ".join(f"{each.throttle_ms}/{each.muted_ms:.0f}" for each in answers)


def main() -> int:
    cases = {name: run for name, run in CASES.items() if name in sys.argv[1:] or not sys.argv[1:]}
    toolchain = Toolchain(fetch=True)
    ports = Ports()
    found: dict[str, dict[str, list[Answer]]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for make in (Moldau, lambda path, port: Apache(path, port, toolchain)):
            port = ports.pair()
            broker: Broker = make(Path(scratch) / f"broker-{port}", port)
            broker.format()
            broker.start()
            try:
                box = Toolbox(toolchain, f"127.0.0.1:{port}", "quotas", Path(scratch))
                subject = Subject(broker, box, port)
                found[type(broker).__name__] = {name: run(subject) for name, run in cases.items()}
            finally:
                broker.stop()
    differing = 0
    for name in cases:
        ours, theirs = found["Moldau"][name], found["Apache"][name]
        alike = is_alike(ours, theirs)
        differing += not alike
        print(f"{'alike' if alike else 'DIFFERENT'}: {name}: throttle_time_ms/muted for ms")
        print(f"    Moldau        {told(ours)}")
        print(f"    Apache Kafka  {told(theirs)}")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
