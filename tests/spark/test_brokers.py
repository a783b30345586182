"""Reading from a broker that runs, in batches and as a stream, against what a consumer sees."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from moldau.spark_jobs.failures import reason_of
from moldau.storage.checkpoints.text_checkpoint import HIGH_WATERMARK_CHECKPOINT, read_offsets
from moldau.storage.files.local_files import LocalFiles
from moldau.tables.options.read_options import parse_options
from moldau.tables.planning.planner import Planner
from tests.conformance.brokers import Broker, Moldau, Ports

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    started = Moldau(tmp_path_factory.mktemp("broker"), Ports().pair())
    started.format()
    started.start()
    yield started
    started.stop()


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    """A topic of two partitions. 0: 300 records, 100 of them aborted, and an open transaction; 1: 50 records."""
    name = "t" + str(abs(hash(request.node.name)))[:8]
    create(broker, name, 2)
    transactor = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name, "linger.ms": 1})
    transactor.init_transactions()
    for number in range(3):
        transactor.begin_transaction()
        send(transactor, name, 0, range(number * 100, number * 100 + 100))
        if number == 1:
            transactor.abort_transaction()
        else:
            transactor.commit_transaction()
    send(Producer({"bootstrap.servers": broker.bootstrap}), name, 1, range(50))
    return name


def create(broker: Broker, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics([NewTopic(name, partitions, 1)]).values():
        future.result()


def send(producer: Producer, topic: str, partition: int, numbers: range) -> None:
    for number in numbers:
        producer.produce(topic, f"value-{number}", f"key-{number}", partition, headers=[("h", str(number).encode())])
    producer.flush()


def load(spark: SparkSession, broker: Broker, topic: str, **options: str) -> DataFrame:
    given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, **options}
    return spark.read.format("moldau").options(**given).load()


def test_a_batch_reads_what_a_consumer_reads(spark: SparkSession, broker: Broker, topic: str) -> None:
    rows = load(spark, broker, topic, includeHeaders="true").orderBy("partition", "offset").collect()
    assert [bytes(row.value) for row in rows[:100]] == [b"value-%d" % number for number in range(100)]
    assert (len(rows), rows[-1].key, rows[-1].headers[0].value) == (350, b"key-49", b"49")
    committed = load(spark, broker, topic, **{"kafka.isolation.level": "read_committed"})
    values = [int(bytes(row.value)[6:]) for row in committed.where("partition = 0").orderBy("offset").collect()]
    assert values == [*range(100), *range(200, 300)]
    assert load(spark, broker, topic, minPartitions="8").rdd.getNumPartitions() >= 4
    assert load(spark, broker, topic, minPartitions="7").count() == 350
    assert load(spark, broker, topic, table="latest").count() == 350 - 0
    some = load(spark, broker, topic, startingOffsets=f'{{"{topic}": {{"0": 50, "1": -2}}}}')
    assert some.where("partition = 0").count() == 250


def test_files_and_a_broker_are_joined(spark: SparkSession, broker: Broker, topic: str, tmp_path: Path) -> None:
    """Each offset comes from the files if they have it; the tail, past their checkpoint, from the broker."""
    copied = tmp_path / "data"
    deadline = time.monotonic() + 30
    while read_offsets(LocalFiles(), str(broker.data), HIGH_WATERMARK_CHECKPOINT).get((topic, 1)) != 50:
        assert time.monotonic() < deadline, "the broker has not written its high watermarks down"
        time.sleep(0.1)
    shutil.copytree(broker.data, copied)
    send(Producer({"bootstrap.servers": broker.bootstrap}), topic, 1, range(50, 90))
    given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "path": str(copied)}
    for level, count in (("read_uncommitted", 390), ("read_committed", 290)):
        options = parse_options({**given, "kafka.isolation.level": level})
        tasks = Planner(LocalFiles(), options).plan().tasks
        kinds = {type(each.source).__name__ for task in tasks for each in task}
        assert kinds == {"LocalSegments", "BrokerBatches"}
        rows = spark.read.format("moldau").options(**given, **{"kafka.isolation.level": level}).load()
        assert rows.count() == count


def test_a_stream_follows_a_broker(spark: SparkSession, broker: Broker, topic: str, tmp_path: Path) -> None:
    source = spark.readStream.format("moldau").option("kafka.bootstrap.servers", broker.bootstrap)
    rows = source.option("subscribe", topic).option("startingOffsets", "earliest").load()
    query = (
        rows.select("partition", "offset")
        .writeStream.format("memory")
        .queryName(topic)
        .option("checkpointLocation", str(tmp_path))
        .trigger(processingTime="0 seconds")
        .start()
    )
    try:
        query.processAllAvailable()
        assert spark.table(topic).count() == 350
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for future in admin.create_partitions([NewPartitions(topic, 3)]).values():
            future.result()
        send(Producer({"bootstrap.servers": broker.bootstrap}), topic, 2, range(20))
        deadline = time.monotonic() + 60
        while spark.table(topic).count() < 370 and time.monotonic() < deadline:
            query.processAllAvailable()
        assert spark.table(topic).count() == 370
    finally:
        query.stop()


def test_what_cannot_be_read_is_named(spark: SparkSession, broker: Broker, topic: str) -> None:
    def refusal(**options: str) -> str:
        with pytest.raises(PySparkException) as problem:
            load(spark, broker, topic, **options).collect()
        return reason_of(problem.value)

    assert "table=batches describes files" in refusal(table="batches")
    nowhere = refusal(**{"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.request.timeout.ms": "300"})
    assert nowhere.startswith("metadata: 127.0.0.1:1: ")
    assert "is not host:port" in refusal(**{"kafka.bootstrap.servers": "nowhere"})
    assert f"no partition of {topic}x" in refusal(subscribe=topic + "x")
    assert "the high watermark is 50" in refusal(endingOffsets=f'{{"{topic}": {{"0": -1, "1": 60}}}}')
