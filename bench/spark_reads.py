"""Spark reads of a topic in turns: from the files by this source, from the broker by Spark's Kafka connector, as
Parquet, and as ready batches (`spark_floor`).

All of them run in one session on two cores, with the same records; the broker runs all the time, because the connector
needs it. Every column is read, and nothing is done with it (`noop`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from statistics import median
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Final, NamedTuple

from bench import spark_floor, spark_objects, spark_streams
from bench.cold_read import BUCKET
from bench.cold_read import broker_settings as tiered_settings
from bench.figures import OURS, PEER, Figure
from bench.groups import RunForm
from bench.object_server import ObjectServer, find_program
from bench.processes import children, cpu_time_with_children
from bench.subjects import Bench, RunningBroker, remove_server
from moldau.spark_jobs.session import local_session
from moldau.storage.checkpoints.text_checkpoint import HIGH_WATERMARK_CHECKPOINT, read_offsets
from moldau.storage.files.local_files import LocalFiles
from tests.conformance.toolchain import CACHE, Missing

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader, SparkSession

JARS: Final = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)
"""The jars of the connector, in versions that work together and with PySpark 4.2."""
MASTER: Final = "local[2]"
PARTITIONS: Final = 4
RECORDS_OF_A_KEY: Final = 8
CHECKPOINT_S_MAX: Final = 30.0


class Topic(NamedTuple):
    """A topic that is read: the size of a value, the codec, and the number of records."""

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
    for size, records, quick in ((100, 4_000_000, 1_000_000), (1024, 800_000, 200_000))
    for codec in ("none", "lz4", "zstd")
)
STREAMED: Final = TOPICS[1]._replace(records=8_000_000)
"""The records of the sustained stream."""
TIERED: Final = TOPICS[3]
"""The records in the object store: 1 KiB without a codec, so that a byte of a row is a byte in the store."""


class WorkSeconds(NamedTuple):
    """The times (s) of the different ways to do the same work."""

    ours: float
    connector: float
    parquet: float = 0
    floor: float = 0


class RoundTimes(NamedTuple):
    """The times (s) of one round."""

    ours: float
    connector: float
    parquet: float
    batches: float
    parquet_count: float
    floor: float
    """The time for ready batches of the same form."""
    broker_cpu: float
    """The CPU time of the broker while this source read."""
    cpu: WorkSeconds
    """The CPU time (s) of Spark and its Python workers in the four scans."""
    latest: WorkSeconds | None = None
    """The time to find the last value of each key: by the table `latest`, and by Spark SQL over the connector."""
    export: WorkSeconds | None = None
    """The time to export to Parquet: by the job `export`, and by Spark SQL over the connector."""


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    """Measure the cases that `form.case` selects by name: a topic, `stream`, `latency` or `objects`."""
    settings = {"spark.jars": ",".join(map(str, connector_jars())), "spark.driver.memory": "2g"}
    figures: list[Figure] = []
    with ExitStack() as stack:
        endpoint = object_server(bench, stack) if form.case in "objects" else None
        extra = ("log.retention.ms=-1", *(tiered_settings(endpoint) if endpoint else ()))
        server = bench.new_server("moldau", extra=extra)
        server.format()
        running = stack.enter_context(RunningBroker(server))
        session = stack.enter_context(local_session("bench", master=MASTER, settings=settings))
        for topic in TOPICS:
            if form.case in topic.name:
                count = topic.records_quick if form.is_quick else topic.records
                produce(running, topic.name, topic, count)
                await_high_watermarks(server.data, topic.name, count)
                figures += figures_of(topic, count, read_in_turns(session, running, topic, form.rounds))
        if form.case in "stream":
            count = STREAMED.records_quick if form.is_quick else STREAMED.records
            produce(running, "stream", STREAMED, count)
            await_high_watermarks(server.data, "stream", count)
            streamed = spark_streams.StreamTopic("stream", str(STREAMED), count)
            figures += spark_streams.sustained_rates(session, running, streamed, form.rounds)
        if form.case in "latency":
            figures += spark_streams.echo_latencies_ms(session, running, form.rounds, is_quick=form.is_quick)
        if endpoint is not None:
            count = TIERED.records_quick if form.is_quick else TIERED.records
            config = spark_objects.topic_config(is_quick=form.is_quick)
            produce(running, spark_objects.TOPIC, TIERED, count, config)
            # The last segment of each partition stays with the broker.
            left = PARTITIONS * int(config["segment.bytes"])
            spark_objects.await_copies(endpoint, count * TIERED.value_size - left)
            figures += spark_objects.object_figures(session, endpoint, form.rounds, server.directory)
    remove_server(server)
    return figures


def object_server(bench: Bench, stack: ExitStack) -> str | None:
    """Start an S3 server with a bucket, and return its endpoint; None if versitygw is missing."""
    try:
        find_program()
    except Missing as missing:
        print(f"  reads from an object store are not measured: {missing}")
        return None
    home = Path(mkdtemp(prefix="objects-", dir=bench.directory))  # Several groups of a run have a server.
    server = stack.enter_context(ObjectServer(home, bench.free_pair()))
    server.make_bucket(BUCKET)
    return server.endpoint


def connector_jars() -> list[Path]:
    """Fetch the jars by Maven, one by one. Raises CalledProcessError and FileNotFoundError."""
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


def produce(running: RunningBroker, name: str, topic: Topic, count: int, config: dict[str, str] | None = None) -> None:
    """Create the topic `name`, and produce records like those of `topic` to it."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    address = f"127.0.0.1:{running.server.port}"
    running.connect().close()
    admin = AdminClient({"bootstrap.servers": address})
    for made in admin.create_topics([NewTopic(name, PARTITIONS, 1, config=config or {})]).values():
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
    keys_count = count // RECORDS_OF_A_KEY
    for number in range(count):
        start = number % 97
        value = b"%016d" % number + filler[start : start + topic.value_size - 16]
        while True:
            try:
                producer.produce(name, value, b"key-%08d" % (number % keys_count), number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(300) == 0


def await_high_watermarks(data: Path, topic: str, count: int) -> None:
    """Wait until a running broker has checkpointed the high watermarks, which it does every few seconds."""
    deadline = time.monotonic() + CHECKPOINT_S_MAX
    while True:
        known = read_offsets(LocalFiles(), str(data), HIGH_WATERMARK_CHECKPOINT)
        if sum(offset for (name, _), offset in known.items() if name == topic) >= count:
            return
        assert time.monotonic() < deadline, known
        time.sleep(0.2)


def read_in_turns(session: SparkSession, running: RunningBroker, topic: Topic, rounds: int) -> list[RoundTimes]:
    """Read the topic in all ways, in turns. There are more rounds than asked for, because the first ones warm up the
    JVM.
    """
    data, address = str(running.server.data), f"127.0.0.1:{running.server.port}"
    parquet = str(running.server.directory / f"{topic.name}.parquet")
    ours = session.read.format("moldau").option("subscribe", topic.name)
    kafka = session.read.format("kafka").option("kafka.bootstrap.servers", address).option("subscribe", topic.name)
    ours.load(data).write.parquet(parquet)
    home = running.server.directory / f"{topic.name}-ready"
    ready = spark_floor.ready_rows(session, {"path": data, "subscribe": topic.name}, home)
    counted = "sum(records) AS records", "sum(bytes) AS bytes"

    def scan(load: Callable[[], object]) -> tuple[float, float]:
        began, cpu_began = time.perf_counter(), spark_cpu()
        load().write.format("noop").mode("overwrite").save()  # type: ignore[attr-defined]
        return time.perf_counter() - began, spark_cpu() - cpu_began

    runs = []
    warm_ups = spark_streams.WARM_UP_ROUNDS if topic is TOPICS[0] else 1
    for number in range(warm_ups + rounds):
        cpu = cpu_time_with_children(running.pid)
        mine, my_cpu = scan(lambda: ours.load(data))
        cpu = cpu_time_with_children(running.pid) - cpu
        connector, connector_cpu = scan(kafka.load)
        columnar, columnar_cpu = scan(lambda: session.read.parquet(parquet))
        floor, floor_cpu = scan(lambda: ready)
        work = WorkSeconds(my_cpu, connector_cpu, columnar_cpu, floor_cpu)
        began = time.perf_counter()
        (row,) = ours.option("table", "batches").load(data).where("NOT isControl").selectExpr(*counted).collect()
        batches = time.perf_counter() - began
        ours.option("table", "records")
        began = time.perf_counter()
        assert session.read.parquet(parquet).count() == row.records
        counted_s = time.perf_counter() - began
        has_jobs = topic.codec == "lz4" and number >= warm_ups - 1
        jobs = (latest(ours, kafka, data), export(session, kafka, data, topic.name)) if has_jobs else ()
        runs.append(RoundTimes(mine, connector, columnar, batches, counted_s, floor, cpu, work, *jobs))
    shutil.rmtree(parquet)
    shutil.rmtree(home)
    return runs[warm_ups:]


def spark_cpu() -> float:
    """The CPU time (s) of the JVM, of its Python workers, and of those workers that have ended."""
    below = children(os.getpid())
    for pid in below:
        below += children(pid)
    total = 0.0
    for pid in below:
        with suppress(FileNotFoundError, ProcessLookupError):
            total += cpu_time_with_children(pid)
    return total


def latest(ours: DataFrameReader, kafka: DataFrameReader, data: str) -> WorkSeconds:
    """Measure the search for the last value of each key. The records of a key are in one partition."""
    from pyspark.sql import functions as f

    began = time.perf_counter()
    mine = ours.option("table", "latest").load(data)
    mine.write.format("noop").mode("overwrite").save()
    between = time.perf_counter()
    ours.option("table", "records")
    fields = f.struct("value", "partition", "offset", "timestamp")
    kafka.load().groupBy("key").agg(f.max_by(fields, "offset")).write.format("noop").mode("overwrite").save()
    return WorkSeconds(between - began, time.perf_counter() - between)


def export(session: SparkSession, kafka: DataFrameReader, data: str, topic: str) -> WorkSeconds:
    """Measure the export of all columns to Parquet with zstd, by both."""
    from moldau.spark_jobs.jobs.export import ExportJob, plan_export, run_export
    from moldau.spark_jobs.jobs.progress import JobProgress

    home = Path(data).parent
    began = time.perf_counter()
    plan = plan_export(ExportJob({"path": data, "subscribe": topic}, topic, str(home / "exported")))
    run_export(session, plan, JobProgress(lambda _: None, plan.size, plan.tasks_count))
    between = time.perf_counter()
    kafka.load().write.option("compression", "zstd").parquet(str(home / "written"))
    ended = time.perf_counter()
    for name in ("exported", "written"):
        shutil.rmtree(home / name)
    return WorkSeconds(between - began, ended - between)


def seconds_text(value: float | WorkSeconds | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if isinstance(value, float) else "/".join(f"{each:.2f}" for each in value)


def figures_of(topic: Topic, count: int, runs: list[RoundTimes]) -> list[Figure]:
    def rates(seconds: list[float]) -> list[float]:
        return [count / each for each in seconds]

    mine = rates([run.ours for run in runs])
    cpu = median(run.broker_cpu for run in runs)
    connector = {OURS: mine, PEER: rates([run.connector for run in runs])}
    parquet = {OURS: mine, PEER: rates([run.parquet for run in runs])}
    floor = {OURS: mine, PEER: rates([run.floor for run in runs])}
    counts = {OURS: [run.batches for run in runs], PEER: [run.parquet_count for run in runs]}
    note = f"{count:,} records, {MASTER}; the broker used {cpu:.2f} s of CPU meanwhile"
    for run in runs:
        print(f"  spark {topic}: {', '.join(f'{name} {seconds_text(value)}' for name, value in run._asdict().items())}")
    sys.stdout.flush()
    cpus = {OURS: [run.cpu.ours for run in runs], PEER: [run.cpu.connector for run in runs]}
    columnar_cpus = {OURS: [run.cpu.ours for run in runs], PEER: [run.cpu.parquet for run in runs]}
    floor_cpus = {OURS: [run.cpu.ours for run in runs], PEER: [run.cpu.floor for run in runs]}
    more = [
        Figure(f"spark: {topic}: full scan, CPU of Spark, in times the JVM connector's", "s", cpus),
        Figure(f"spark: {topic}: all columns, CPU of Spark, in times Parquet's", "s", columnar_cpus),
        Figure(f"spark: {topic}: all columns, CPU of Spark, in times that of ready batches", "s", floor_cpus),
    ]
    for name, works in (
        ("latest value of each key, against Spark SQL over the JVM connector", [run.latest for run in runs]),
        ("export to Parquet, against Spark SQL over the JVM connector", [run.export for run in runs]),
    ):
        done = [each for each in works if each is not None]
        if done:
            both = {OURS: rates([each.ours for each in done]), PEER: rates([each.connector for each in done])}
            more.append(Figure(f"spark: {topic}: {name}", "rows/s", both, False))
    return [
        *more,
        Figure(f"spark: {topic}: full scan, against the JVM connector", "rows/s", connector, False, note),
        Figure(f"spark: {topic}: all columns, against ready batches", "rows/s", floor, False),
        Figure(f"spark: {topic}: all columns, against Parquet", "rows/s", parquet, False),
        Figure(f"spark: {topic}: count and bytes from headers, against Parquet's count", "s", counts),
    ]
