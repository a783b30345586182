"""Records of whole topics, by librdkafka: read as they come, or once to the end of each partition."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from tests.conformance.outcome import Failed

QUIET = {"log_level": 2}
"""librdkafka otherwise logs each connection that a killed broker does not take."""
LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]
POLLED_AT_ONCE = 1000
REQUEST_S = 20.0
"""A request of an administrator: another node may have to become the controller meanwhile."""
PATIENCE_S = 120.0
"""For what takes seconds on a machine that does nothing else."""


class Stored(NamedTuple):
    """A record that a reader was given."""

    partition: int
    offset: int
    key: str
    value: str


def administrator(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, **QUIET})


def create_topics(bootstrap: str, topics: Mapping[str, int], **configs: str) -> None:
    """By name, with their numbers of partitions, on three nodes each; `retention_ms` stands for `retention.ms`."""
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    wanted = [NewTopic(topic, count, 3, config=settings) for topic, count in topics.items()]
    admin = administrator(bootstrap)  # its requests are given up when it is collected
    for created in admin.create_topics(wanted, request_timeout=REQUEST_S).values():
        created.result()


def await_in_sync(bootstrap: str, replicas: int) -> None:
    """Until every partition of every topic has so many replicas in sync. Raises `Failed`."""
    admin = administrator(bootstrap)
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            topics = admin.list_topics(timeout=REQUEST_S).topics
            short = [
                f"{topic}-{index}"
                for topic, described in topics.items()
                for index, partition in described.partitions.items()
                if len(partition.isrs) < replicas
            ]
        except KafkaException as error:
            short = [str(error)]
        if not short:
            return
        if time.monotonic() > deadline:
            raise Failed(f"not all {replicas} replicas are in sync after {PATIENCE_S:.0f} s: {short[:5]}")
        time.sleep(0.5)


class TopicReader:
    """Gives each partition's records in their order; it is a member of no group."""

    def __init__(self, bootstrap: str, topics: Mapping[str, int], isolation: str = "read_committed") -> None:
        self.records: dict[str, list[Stored]] = {topic: [] for topic in topics}
        self._ended: dict[tuple[str, int], int] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "reader",
                "enable.auto.commit": False,
                "isolation.level": isolation,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                **QUIET,
            }
        )
        self._consumer.assign([TopicPartition(*each, OFFSET_BEGINNING) for each in partitions_of(topics)])

    def read(self, seconds: float) -> None:
        """What arrives within the time, until there is nothing more. Raises `Failed`."""
        for message in self._consumer.consume(POLLED_AT_ONCE, seconds):
            error, topic, partition, offset = message.error(), message.topic(), message.partition(), message.offset()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    assert topic is not None and partition is not None and offset is not None
                    self._ended[topic, partition] = offset
                elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                    raise Failed(f"{topic}-{partition} no longer has what was read of it: {error.str()}")
                continue  # a broker is away: librdkafka goes on with another
            key, value = message.key(), message.value()
            assert topic is not None and partition is not None and offset is not None
            assert not isinstance(key, str) and not isinstance(value, str)
            self.records[topic].append(Stored(partition, offset, (key or b"").decode(), (value or b"").decode()))

    def is_at(self, ends: Mapping[tuple[str, int], int]) -> bool:
        """The broker has said of each of these partitions that it ends there, or later."""
        return all(self._ended.get(place, -1) >= end for place, end in ends.items())

    def close(self) -> None:
        self._consumer.close()


def partitions_of(topics: Mapping[str, int]) -> list[tuple[str, int]]:
    return [(topic, index) for topic, count in topics.items() for index in range(count)]


def ends_of(bootstrap: str, places: Iterable[tuple[str, int]], isolation: IsolationLevel) -> dict[tuple[str, int], int]:
    wanted = {TopicPartition(*place): LATEST for place in places}
    admin = administrator(bootstrap)
    found = admin.list_offsets(wanted, isolation_level=isolation, request_timeout=REQUEST_S)
    return {(place.topic, place.partition): future.result().offset for place, future in found.items()}


def all_committed(bootstrap: str, topics: Mapping[str, int]) -> dict[str, list[Stored]]:
    """Everything that these topics hold, once every transaction has ended. Raises `Failed`."""
    places = partitions_of(topics)
    deadline = time.monotonic() + PATIENCE_S
    while (ends := ends_of(bootstrap, places, IsolationLevel.READ_UNCOMMITTED)) != (
        stable := ends_of(bootstrap, places, IsolationLevel.READ_COMMITTED)
    ):
        if time.monotonic() > deadline:
            open_in = [place for place in places if stable[place] != ends[place]]
            raise Failed(f"transactions are open {PATIENCE_S:.0f} s after the last producer has stopped: {open_in}")
        time.sleep(0.5)
    return _all(bootstrap, topics, ends, "read_committed")


def aborted_count(bootstrap: str, topics: Mapping[str, int], committed: Mapping[str, Sequence[Stored]]) -> int:
    """How many records these topics hold besides the committed ones. Raises `Failed`."""
    ends = ends_of(bootstrap, partitions_of(topics), IsolationLevel.READ_UNCOMMITTED)
    every = _all(bootstrap, topics, ends, "read_uncommitted")
    return sum(len(every[topic]) - len(committed[topic]) for topic in topics)


def _all(
    bootstrap: str, topics: Mapping[str, int], ends: Mapping[tuple[str, int], int], isolation: str
) -> dict[str, list[Stored]]:
    reader = TopicReader(bootstrap, topics, isolation)
    deadline = time.monotonic() + PATIENCE_S
    try:
        while not reader.is_at(ends):
            if time.monotonic() > deadline:
                raise Failed(f"a reader ({isolation}) has not reached the ends {ends}")
            reader.read(0.5)
    finally:
        reader.close()
    return reader.records


def first_difference(read: Sequence[object], wanted: Sequence[object]) -> str:
    """Says where two sequences part; empty if they are equal."""
    for index, (came, want) in enumerate(zip(read, wanted, strict=False)):
        if came != want:
            return f"number {index} is {came}, not {want}; {len(read)} came of {len(wanted)}"
    return "" if len(read) == len(wanted) else f"{len(read)} came of {len(wanted)}"
