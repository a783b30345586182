"""Spark reads a topic: from the files by this source, from the broker by Spark's Kafka connector, as Parquet.

All three in one session on two cores, in turns, of the same records; the broker runs all the time, because the
connector needs it. Every column is read, and nothing is done with it (`noop`).
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

from bench.figures import OURS, PEER, Figure
from bench.groups import Form
from bench.processes import cpu_time_with_children
from bench.subjects import Bench, Running, remove
from spark_jobs.session import local_session
from storage.checkpoints.offset_checkpoint import HIGH_WATERMARKS, read_offsets
from storage.files.local_files import LocalFiles
from tests.conformance.toolchain import CACHE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JARS: Final = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)
"""Of the connector; these versions work together, and with PySpark 4.2."""
MASTER: Final = "local[2]"
PARTITIONS: Final = 4
CHECKPOINT_S_MAX: Final = 30.0


class Topic(NamedTuple):
    """What is read: the size of a value, the codec, and how many records there are."""

    value_size: int
    codec: str
    records: int
    records_quick: int

    def __str__(self) -> str:
        size = "1 KiB" if self.value_size == 1024 else f"{self.value_size} B"
        return f"{size} values, {self.codec}"

    @property
    def name(self) -> str:
        return f"read-{self.value_size}-{self.codec}"


TOPICS: Final = tuple(
    Topic(size, codec, records, quick)
    for size, records, quick in ((100, 8_000_000, 2_000_000), (1024, 1_200_000, 300_000))
    for codec in ("none", "lz4", "zstd")
)


class Times(NamedTuple):
    """Seconds of one round."""

    ours: float
    connector: float
    parquet: float
    batches: float
    parquet_count: float
    broker_cpu: float
    """Of the broker, while this source read."""


def measure(bench: Bench, form: Form) -> list[Figure]:
    settings = {"spark.jars": ",".join(map(str, connector_jars())), "spark.driver.memory": "2g"}
    server = bench.new("moldau", extra=("log.retention.ms=-1",))
    server.format()
    figures: list[Figure] = []
    with Running(server) as running, local_session("bench", master=MASTER, settings=settings) as session:
        for topic in TOPICS:
            count = topic.records_quick if form.is_quick else topic.records
            produce(running, topic, count)
            await_high_watermarks(server.data, topic, count)
            runs = in_turns(session, running, topic, form.rounds)
            figures += figures_of(topic, count, runs)
    remove(server)
    return figures


def connector_jars() -> list[Path]:
    """Fetched one by one, by Maven. Raises CalledProcessError and FileNotFoundError."""
    home = CACHE / "spark-kafka"
    home.mkdir(parents=True, exist_ok=True)
    paths = []
    for artifact in JARS:
        _, name, version = artifact.split(":")
        path = home / f"{name}-{version}.jar"
        if not path.exists():
            maven = shutil.which("mvn") or "mvn"
            goal = ("dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={home}")
            subprocess.run([maven, "-q", "-B", *goal], check=True, capture_output=True)
        paths.append(path)
    return paths


def produce(running: Running, topic: Topic, count: int) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    address = f"127.0.0.1:{running.server.port}"
    running.connect().close()
    admin = AdminClient({"bootstrap.servers": address})
    for made in admin.create_topics([NewTopic(topic.name, PARTITIONS, 1)]).values():
        made.result(30)
    producer = Producer(
        {
            "bootstrap.servers": address,
            "compression.type": topic.codec,
            "batch.size": 16 << 10,
            "linger.ms": 20,
            "queue.buffering.max.messages": 500_000,
        }
    )
    filler = bytes(range(256)) * 5
    for number in range(count):
        start = number % 97
        value = b"%016d" % number + filler[start : start + topic.value_size - 16]
        while True:
            try:
                producer.produce(topic.name, value, b"key-%08d" % (number % 1_000_000), number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(300) == 0


def await_high_watermarks(data: Path, topic: Topic, count: int) -> None:
    """A running broker writes them down every few seconds."""
    deadline = time.monotonic() + CHECKPOINT_S_MAX
    while True:
        known = read_offsets(LocalFiles(), str(data), HIGH_WATERMARKS)
        if sum(offset for (name, _), offset in known.items() if name == topic.name) >= count:
            return
        assert time.monotonic() < deadline, known
        time.sleep(0.2)


def in_turns(session: SparkSession, running: Running, topic: Topic, rounds: int) -> list[Times]:
    """One round more than asked for, which warms everything up."""
    data, address = str(running.server.data), f"127.0.0.1:{running.server.port}"
    parquet = str(running.server.directory / f"{topic.name}.parquet")
    ours = session.read.format("moldau").option("subscribe", topic.name)
    kafka = session.read.format("kafka").option("kafka.bootstrap.servers", address).option("subscribe", topic.name)
    ours.load(data).write.parquet(parquet)
    counted = "sum(records) AS records", "sum(bytes) AS bytes"

    def scan(load: Callable[[], object]) -> float:
        began = time.perf_counter()
        load().write.format("noop").mode("overwrite").save()  # type: ignore[attr-defined]
        return time.perf_counter() - began

    runs = []
    for _ in range(rounds + 1):
        cpu = cpu_time_with_children(running.pid)
        mine = scan(lambda: ours.load(data))
        cpu = cpu_time_with_children(running.pid) - cpu
        connector = scan(kafka.load)
        columnar = scan(lambda: session.read.parquet(parquet))
        began = time.perf_counter()
        (row,) = ours.option("table", "batches").load(data).where("NOT isControl").selectExpr(*counted).collect()
        batches = time.perf_counter() - began
        ours.option("table", "records")
        began = time.perf_counter()
        assert session.read.parquet(parquet).count() == row.records
        runs.append(Times(mine, connector, columnar, batches, time.perf_counter() - began, cpu))
    shutil.rmtree(parquet)
    return runs[1:]


def figures_of(topic: Topic, count: int, runs: list[Times]) -> list[Figure]:
    def rates(seconds: list[float]) -> list[float]:
        return [count / each for each in seconds]

    mine = rates([run.ours for run in runs])
    cpu = median(run.broker_cpu for run in runs)
    connector = {OURS: mine, PEER: rates([run.connector for run in runs])}
    parquet = {OURS: mine, PEER: rates([run.parquet for run in runs])}
    counts = {OURS: [run.batches for run in runs], PEER: [run.parquet_count for run in runs]}
    note = f"{count:,} records, {MASTER}; the broker used {cpu:.2f} s of CPU meanwhile"
    for run in runs:
        print(
            f"  spark {topic}: {', '.join(f'{name} {value:.2f}' for name, value in run._asdict().items())}", flush=True
        )
    return [
        Figure(f"spark: {topic}: full scan, against the JVM connector", "rows/s", connector, False, note),
        Figure(f"spark: {topic}: all columns, against Parquet", "rows/s", parquet, False),
        Figure(f"spark: {topic}: count and bytes from headers, against Parquet's count", "s", counts),
    ]
