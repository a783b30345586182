"""Writing to a broker that runs: partitions, headers, and streams that write once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from moldau.spark_jobs.failures import reason_of
from tests.conformance.brokers import Broker, Moldau, Ports
from tests.support.segments import mixed_batches, write_checkpoints, write_partition

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    started = Moldau(tmp_path_factory.mktemp("broker"), Ports().pair())
    started.format()
    started.start()
    yield started
    started.stop()


def create(broker: Broker, *names: str, partitions: int = 5) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics([NewTopic(name, partitions, 1) for name in names]).values():
        future.result()


def written(spark: SparkSession, broker: Broker, topic: str, level: str = "read_committed") -> DataFrame:
    given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "includeHeaders": "true"}
    return spark.read.format("moldau").options(**given, **{"kafka.isolation.level": level}).load()


def test_keys_go_where_other_clients_send_them(spark: SparkSession, broker: Broker) -> None:
    create(broker, "ours", "theirs")
    rows = spark.range(5000).selectExpr(
        "'ours' AS topic", "concat('key-', id) AS key", "CAST(id AS STRING) AS value",
        "array(struct('id' AS key, CAST(CAST(id AS STRING) AS BINARY) AS value)) AS headers",
    )  # fmt: skip
    target = rows.write.format("moldau").mode("append").option("kafka.bootstrap.servers", broker.bootstrap)
    target.option("kafka.compression.type", "lz4").option("kafka.batch.size", "4000").save()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random"})
    for number in range(5000):
        producer.produce("theirs", str(number), f"key-{number}")
    producer.flush()
    found = [written(spark, broker, topic).select("key", "value", "partition") for topic in ("ours", "theirs")]
    assert sorted(found[0].collect()) == sorted(found[1].collect())
    (row,) = written(spark, broker, "ours").where("CAST(value AS STRING) = '77'").collect()
    assert [(each.key, bytes(each.value)) for each in row.headers] == [("id", b"77")]


def test_rows_choose_partitions_and_topics(spark: SparkSession, broker: Broker) -> None:
    create(broker, "even", "odd")
    rows = spark.range(100).selectExpr(
        "if(id % 2 = 0, 'even', 'odd') AS topic", "CAST(id % 5 AS INT) AS partition", "CAST(NULL AS BINARY) AS value"
    )
    save = rows.write.format("moldau").mode("append").option("kafka.bootstrap.servers", broker.bootstrap).save
    save()
    counts = written(spark, broker, "even,odd").groupBy("topic", "partition").count().collect()
    assert sorted(tuple(row) for row in counts) == [(name, n, 10) for name in ("even", "odd") for n in range(5)]
    for change, said in (
        ("CAST(9 AS INT) AS partition, topic", "even-9: the topic has 5 partitions"),
        ("'nowhere' AS topic", "topic: there is no topic nowhere"),
    ):
        with pytest.raises(PySparkException) as problem:
            wrong = rows.where("topic = 'even'").selectExpr("value", *change.split(", "))
            wrong.write.format("moldau").mode("append").option("kafka.bootstrap.servers", broker.bootstrap).save()
        assert reason_of(problem.value) == said


def stream(spark: SparkSession, directory: Path, broker: Broker, topic: str, **options: str) -> None:
    source = spark.readStream.format("moldau").option("subscribe", "t").option("startingOffsets", "earliest")
    source = source.option("maxOffsetsPerTrigger", "100").option("minPartitions", "4")
    rows = source.load(str(directory / "data")).select("key", "value")
    writer = rows.writeStream.format("moldau").options(**options).option("topic", topic)
    writer = writer.option("kafka.bootstrap.servers", broker.bootstrap)
    writer = writer.option("checkpointLocation", str(directory / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_batch_that_is_run_again(spark: SparkSession, broker: Broker, tmp_path: Path, delivery: str) -> None:
    """The driver dies after it has committed the transactions, and before Spark has noted the batch."""
    create(broker, delivery)
    write_partition(tmp_path / "data", mixed_batches(40, 10))
    write_checkpoints(tmp_path / "data", {("t", 0): 400})
    stream(spark, tmp_path, broker, delivery, delivery=delivery)
    assert written(spark, broker, delivery).count() == 400
    for commit in (tmp_path / "checkpoint" / "commits").glob("*3*"):
        commit.unlink()
    for commit in (tmp_path / "checkpoint" / "commits").glob(".3*"):
        commit.unlink()
    stream(spark, tmp_path, broker, delivery, delivery=delivery)
    is_once = delivery == "exactly-once"
    assert written(spark, broker, delivery).count() == (400 if is_once else 500)
    assert written(spark, broker, delivery, "read_uncommitted").count() == 500


def test_a_failed_task_leaves_nothing_that_is_committed(spark: SparkSession, broker: Broker) -> None:
    create(broker, "failed")
    # One task, of more rows than fit between the JVM and Python: it has sent records when it fails.
    rows = spark.range(0, 300_000, 1, 1).selectExpr(
        "'failed' AS topic", "if(id = 299999, raise_error('no'), repeat(CAST(id AS STRING), 20)) AS value"
    )
    target = rows.write.format("moldau").mode("append").option("delivery", "exactly-once")
    target = target.option("kafka.batch.size", "500").option("kafka.bootstrap.servers", broker.bootstrap)
    with pytest.raises(PySparkException):
        target.save()
    assert written(spark, broker, "failed", "read_uncommitted").count() > 0
    assert written(spark, broker, "failed").count() == 0


def test_what_cannot_be_written_is_named(spark: SparkSession, broker: Broker) -> None:
    def refusal(rows: DataFrame, mode: str = "append", **options: str) -> str:
        with pytest.raises(PySparkException) as problem:
            rows.write.format("moldau").mode(mode).options(**options).save()
        return reason_of(problem.value)

    given = {"kafka.bootstrap.servers": broker.bootstrap, "topic": "t"}
    assert refusal(spark.range(1), **given) == "schema: there is no column value; the columns are id"
    rows = spark.range(1).selectExpr("'v' AS value")
    assert refusal(rows, mode="overwrite", **given) == "mode: records are only appended to a topic"
    assert "the option subscribe is not supported in a write" in refusal(rows, **given, subscribe="t")
