"""Random histories of a topic, written to real brokers by real producers, and the rows that a real consumer reads.

Some producers are transactional (librdkafka's): their transactions overlap, commit, abort, or stay open. The topic is
compacted, copied to a tiered storage, or loses records at its beginning.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from confluent_kafka import Consumer, Message, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from hypothesis import strategies as st

import moldau
from moldau.storage.checkpoints.text_checkpoint import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    TopicPartition,
    read_offsets,
)
from moldau.storage.files.local_files import LocalFiles
from tests.support.tables import read_table

PARTITIONS: Final = 3
PRODUCERS: Final = 2
"""The transactional ones."""
KEYS: Final = 5
SEGMENT_BYTES: Final = 1500
WAIT_S: Final = 30.0
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
POLICIES: Final = {
    "plain": {},
    "compacted": {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.001",
        "delete.retention.ms": "0",
        "min.compaction.lag.ms": "0",
    },
    "tiered": {"remote.storage.enable": "true", "local.retention.bytes": "1", "retention.ms": "-1"},
}
SETTINGS: Final = (
    "replica.high.watermark.checkpoint.interval.ms=100",
    "log.cleaner.backoff.ms=100",
    "log.initial.task.delay.ms=100",
    "log.retention.check.interval.ms=200",
    "remote.log.storage.system.enable=true",
    "remote.log.manager.task.interval.ms=200",
    "rlmm.config.remote.log.metadata.topic.num.partitions=1",
    "rlmm.config.remote.log.metadata.topic.replication.factor=1",
)
"""Of the brokers: what they do now and then, they do often."""
COLUMNS: Final = "partition,offset,key,value,timestamp,timestampType,headers"
Row: TypeAlias = tuple[object, ...]


class Send(NamedTuple):
    """Records to a partition, in one batch, by a transactional producer or by none."""

    partition: int
    records: int
    producer: int | None
    codec: str


class End(NamedTuple):
    """The end of the transaction of a producer, if it has one."""

    producer: int
    commits: bool


class Delete(NamedTuple):
    """The beginning of a partition goes: a share of its offsets."""

    partition: int
    share: float


Step: TypeAlias = "Send | End | Delete"


@dataclass(frozen=True, slots=True)
class History:
    """What happens to a topic. A step that its policy does not allow is left out."""

    policy: str
    steps: tuple[Step, ...]


def histories(policies: Sequence[str] = tuple(POLICIES)) -> st.SearchStrategy[History]:
    partitions = st.integers(0, PARTITIONS - 1)
    producers = st.integers(0, PRODUCERS - 1)
    sends = st.builds(Send, partitions, st.integers(1, 12), st.none() | producers, st.sampled_from(CODECS))
    ends = st.builds(End, producers, st.booleans())
    deletes = st.builds(Delete, partitions, st.floats(0, 1))
    # Sends stand there twice, so that there is something to end and to delete.
    steps = st.lists(st.one_of(sends, sends, ends, deletes), min_size=5, max_size=40).map(tuple)
    return st.builds(History, st.sampled_from(policies), steps)


class Writer:
    """Plays histories against brokers. `close` ends the transactions that these left open."""

    def __init__(self, bootstrap: str, topic: str, policy: str, replication: int = 1) -> None:
        self.topic = topic
        self._bootstrap = bootstrap
        self._policy = policy
        self._plain: dict[str, Producer] = {}
        self._transactional: dict[int, Producer] = {}
        self._open: set[int] = set()
        self._sent = 0
        config = {"internal.segment.bytes": str(SEGMENT_BYTES), "index.interval.bytes": "200", **POLICIES[policy]}
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        for made in self._admin.create_topics([NewTopic(topic, PARTITIONS, replication, config=config)]).values():
            made.result(WAIT_S)

    @property
    def has_open_transactions(self) -> bool:
        return bool(self._open)

    def play(self, steps: Sequence[Step]) -> None:
        for step in steps:
            match step:
                case Send():
                    self._send(step)
                case End(producer, commits):
                    self.end(producer, commits=commits)
                case Delete(partition, share):
                    self._delete(partition, share)

    def end(self, producer: int, *, commits: bool) -> None:
        if producer in self._open:
            self._open.discard(producer)
            transactional = self._transactional[producer]
            (transactional.commit_transaction if commits else transactional.abort_transaction)(WAIT_S)

    def close(self) -> None:
        for producer in list(self._open):
            self.end(producer, commits=False)

    def _send(self, step: Send) -> None:
        producer = self._producer(step)
        for _ in range(step.records):
            number, self._sent = self._sent, self._sent + 1
            key = None if number % 9 == 0 and self._policy != "compacted" else b"key-%d" % (number % KEYS)
            value = None if number % 11 == 0 else b"%d " % number * (1 + number % 7)
            headers: list[tuple[str, str | bytes | None]] | None = None
            if number % 4 == 0:
                headers = [("number", b"%d" % number), ("nothing", None)]
            producer.produce(self.topic, value, key, step.partition, headers=headers)
        assert producer.flush(WAIT_S) == 0

    def _producer(self, step: Send) -> Producer:
        if step.producer is None:
            if step.codec not in self._plain:
                settings = {"bootstrap.servers": self._bootstrap, "compression.type": step.codec, "linger.ms": 5}
                self._plain[step.codec] = Producer(settings)
            return self._plain[step.codec]
        made = self._transactional.get(step.producer)
        if made is None:
            name = f"{self.topic}-{step.producer}"
            settings = {"bootstrap.servers": self._bootstrap, "transactional.id": name, "compression.type": step.codec}
            made = self._transactional[step.producer] = Producer({**settings, "linger.ms": 5})
            made.init_transactions(WAIT_S)
        if step.producer not in self._open:
            made.begin_transaction()
            self._open.add(step.producer)
        return made

    def _delete(self, partition: int, share: float) -> None:
        if self._policy != "plain":
            return
        start, end = watermarks(self._bootstrap, self.topic)[partition]
        wanted = Place(self.topic, partition, start + int(share * (end - start)))
        for deleted in self._admin.delete_records([wanted]).values():
            deleted.result(WAIT_S)


def reader(bootstrap: str, level: str = "read_committed") -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "histories",
            "enable.auto.commit": False,
            "isolation.level": level,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "check.crcs": True,
        }
    )


def watermarks(bootstrap: str, topic: str) -> dict[int, tuple[int, int]]:
    """(log start offset, high watermark) of each partition; a reader with read_committed is told a stable offset."""
    consumer = reader(bootstrap, "read_uncommitted")
    try:
        found = {}
        for partition in range(PARTITIONS):
            both = consumer.get_watermark_offsets(Place(topic, partition), WAIT_S)
            assert both is not None
            found[partition] = both
        return found
    finally:
        consumer.close()


def consumed(bootstrap: str, topic: str) -> list[Row]:
    """The rows of a read_committed consumer from the beginning of each partition to its end."""
    consumer = reader(bootstrap)
    consumer.assign([Place(topic, partition, 0) for partition in range(PARTITIONS)])
    rows: list[Row] = []
    ended: set[int | None] = set()
    deadline = time.monotonic() + WAIT_S
    try:
        while len(ended) < PARTITIONS:
            assert time.monotonic() < deadline, f"the consumer has reached the end of {sorted(map(str, ended))} only"
            for message in consumer.consume(1000, 0.2):
                error = message.error()
                if error is None:
                    rows.append(row_of(message))
                else:
                    assert error.name() == "_PARTITION_EOF", error
                    ended.add(message.partition())
    finally:
        consumer.close()
    return sorted(rows, key=place_of)


def row_of(message: Message) -> Row:
    kind, timestamp = message.timestamp()
    headers = message.headers()
    assert not isinstance(headers, dict)
    place = (message.partition(), message.offset(), message.key(), message.value())
    return (*place, timestamp, kind - 1, tuple(map(tuple, headers)) if headers else None)


def rows_of_files(paths: Sequence[Path], topic: str, **options: str) -> list[Row]:
    """The rows of the data source, read without a JVM."""
    given = {"subscribe": topic, "includeHeaders": "true", "columns": COLUMNS, **options}
    table = read_table(",".join(map(str, paths)), **given, **{"kafka.isolation.level": "read_committed"})
    return sorted(map(row_from_columns, table.to_pylist()), key=place_of)


def rows_of_reader(paths: Sequence[Path], topic: str) -> list[Row]:
    """The rows of `moldau.read_topic`, decoded by two threads."""
    reader = moldau.read_topic(list(paths), topic, columns=COLUMNS.split(","), threads=2)
    return sorted(map(row_from_columns, reader.read_all().to_pylist()), key=place_of)


def row_from_columns(row: dict[str, object]) -> Row:
    timestamp, headers = row["timestamp"], row["headers"]
    assert isinstance(timestamp, datetime)
    assert headers is None or isinstance(headers, list)
    shown = None if headers is None else tuple((each["key"], each["value"]) for each in headers)
    milliseconds = round(timestamp.timestamp() * 1000)
    place = (row["partition"], row["offset"], row["key"], row["value"])
    return (*place, milliseconds, row["timestampType"], shown)


def place_of(row: Row) -> tuple[int, int]:
    partition, offset = row[:2]
    assert isinstance(partition, int) and isinstance(offset, int)
    return partition, offset


def await_checkpoints(directories: Sequence[Path], bootstrap: str, topic: str) -> None:
    """Until the checkpoints have the high watermarks and the log start offsets that the brokers have now."""
    wanted = watermarks(bootstrap, topic)
    deadline = time.monotonic() + WAIT_S
    while (found := {each: checkpointed(directories, (topic, each)) for each in wanted}) != wanted:
        assert time.monotonic() < deadline, f"the checkpoints say {found}, the brokers {wanted}"
        time.sleep(0.02)


def checkpointed(directories: Sequence[Path], key: TopicPartition) -> tuple[int, int]:
    """(log start offset, high watermark) of the replicas in these directories; a log start that the first segment
    shows is in no checkpoint."""
    starts, ends = [0], [0]
    for directory in directories:
        starts.append(read_offsets(LocalFiles(), str(directory), LOG_START_CHECKPOINT).get(key, 0))
        ends.append(read_offsets(LocalFiles(), str(directory), HIGH_WATERMARK_CHECKPOINT).get(key, 0))
    return max(starts), max(ends)


def segments_of(directories: Sequence[Path], topic: str, partition: int) -> list[int]:
    """The first offsets of the local segments, of all replicas."""
    found = {path for directory in directories for path in directory.glob(f"{topic}-{partition}/*.log")}
    return sorted(int(path.stem) for path in found)
