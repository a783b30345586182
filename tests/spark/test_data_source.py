"""The data source in a session: found without being registered, pruned, bounded, refused in words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from moldau.protocol.record_builder import build_batch
from moldau.spark_jobs.failures import reason_of
from tests.support.segments import mixed_batches, mixed_record, write_checkpoints, write_partition


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A topic of two partitions with 400 and 200 records."""
    write_partition(tmp_path, mixed_batches(40, 10))
    write_partition(tmp_path, mixed_batches(20, 10), partition=1)
    write_checkpoints(tmp_path, {("t", 0): 400, ("t", 1): 200, ("empty", 0): 0})
    write_partition(tmp_path, [], topic="empty")
    return tmp_path


def load(spark: SparkSession, directory: Path, schema: str | None = None, **options: str) -> DataFrame:
    source = spark.read.format("moldau").options(**{"subscribe": "t", **options})
    return (source.schema(schema) if schema else source).load(str(directory))


def test_rows_have_the_columns_of_the_kafka_connector(spark: SparkSession, directory: Path) -> None:
    assert load(spark, directory).dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
    ]
    with_headers = load(spark, directory, includeHeaders="true")
    assert with_headers.dtypes[-1] == ("headers", "array<struct<key:string,value:binary>>")
    (row,) = with_headers.where("partition = 1 AND offset = 9").collect()
    assert [(header.key, bytes(header.value)) for header in row.headers[:2]] == [("trace", b"\x00\xff"), ("", b"")]
    assert row.headers[2].value is None
    assert (row.key, row.topic, row.timestampType) == (b"key-9", "t", 0)


def test_columns_and_offsets_are_pruned(spark: SparkSession, directory: Path) -> None:
    rows = load(
        spark,
        directory,
        "offset bigint, key binary",
        startingOffsets='{"t": {"0": 395, "1": -2}}',
        endingOffsets='{"t": {"0": -1, "1": 3}}',
    )
    found = sorted((row.offset, row.key) for row in rows.collect())
    assert found == sorted((offset, mixed_record(offset).key) for offset in [*range(395, 400), *range(3)])


def test_the_directories_of_a_broker_are_read_together(
    spark: SparkSession, directory: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("other")
    write_partition(other, mixed_batches(3, 10), partition=2)
    write_checkpoints(other, {("t", 2): 30})
    source = spark.read.format("moldau").option("subscribe", "t")
    expected = [(0, 400), (1, 200), (2, 30)]
    for rows in (source.load([str(directory), str(other)]), source.load(f"{directory},{other}")):
        assert sorted(tuple(row) for row in rows.groupBy("partition").count().collect()) == expected


def test_tasks_are_as_many_as_asked_for(spark: SparkSession, directory: Path) -> None:
    assert load(spark, directory).rdd.getNumPartitions() == 1
    assert 4 <= load(spark, directory, minPartitions="8").rdd.getNumPartitions() <= 16


def test_a_topic_of_nothing_has_no_rows(spark: SparkSession, directory: Path) -> None:
    assert load(spark, directory, subscribe="empty").count() == 0


def test_a_view_is_a_snapshot_and_the_next_one_sees_more(spark: SparkSession, directory: Path) -> None:
    """Spark plans a source once for each DataFrame or view: its offsets stay what they were then."""
    view = f"CREATE OR REPLACE TEMPORARY VIEW t USING moldau OPTIONS (path '{directory}', subscribe 't')"
    query = "SELECT count(*), max(offset) FROM t WHERE partition = 0"
    write_checkpoints(directory, {("t", 0): 123, ("t", 1): 200})
    spark.sql(view)
    assert spark.sql(query).first() == (123, 122)
    write_checkpoints(directory, {("t", 0): 400, ("t", 1): 200})
    assert spark.sql(query).first() == (123, 122)
    spark.sql(view)
    assert spark.sql(query).first() == (400, 399)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"checkpointLocation": "5"}, "the option checkpointlocation is not supported"),
        ({"pushdown": "true"}, "the option pushdown is not supported: PySpark keeps the predicates of one query"),
        ({"subscribe": "u"}, "no partition of u is in the places that are read"),
        ({"endingOffsets": '{"t": {"0": 401, "1": 1}}'}, "the high watermark is 400"),
    ],
)
def test_what_cannot_be_read_is_said(spark: SparkSession, directory: Path, options: dict[str, str], said: str) -> None:
    with pytest.raises(PySparkException) as problem:
        load(spark, directory, **options).collect()
    assert said in reason_of(problem.value)


def test_a_corrupt_batch_fails_the_query_and_is_named(spark: SparkSession, directory: Path) -> None:
    batch = bytearray(build_batch([mixed_record(1)]))
    batch[-1] ^= 1
    write_partition(directory, [], topic="bad")
    log = directory / "bad-0" / f"{0:020d}.log"
    log.write_bytes(batch)
    write_checkpoints(directory, {("bad", 0): 1})
    with pytest.raises(PySparkException) as problem:
        load(spark, directory, subscribe="bad").collect()
    assert reason_of(problem.value) == (
        f"bad-0, offsets 0 to 1: {log}, position 0: the checksum of the batch does not match"
    )


@pytest.fixture(params=["true", "false"])
def pushing(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[None]:
    """Spark's setting under which PySpark keeps the predicates of one query for the next ones."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", request.param)
    yield
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")


@pytest.mark.usefixtures("pushing")
def test_no_query_has_the_predicates_of_another_one(spark: SparkSession, directory: Path) -> None:
    rows = load(spark, directory)
    few = rows.where("offset < 5")
    few.cache()
    assert [few.count(), rows.count(), rows.where("offset >= 390").count(), few.count()] == [10, 600, 10, 10]
    few.unpersist()
    assert [few.union(rows).count(), rows.union(few).count()] == [610, 610]
    assert rows.where("offset < 7").union(rows.where("partition = 1 AND offset < 3")).count() == 17
    assert rows.alias("a").join(few.alias("b"), ["partition", "offset"], "left").count() == 600
    rows.createOrReplaceTempView("rows")
    queries = ("offset < 5", "true", "timestamp < TIMESTAMP '2000-01-01'", "partition IN (1)")
    assert [spark.sql(f"SELECT 1 FROM rows WHERE {each}").count() for each in queries] == [10, 600, 0, 200]
    others = "SELECT 1 FROM rows WHERE rows.offset NOT IN (SELECT offset FROM rows WHERE partition = 1)"
    assert spark.sql(f"SELECT 1 FROM rows WHERE offset < 5 UNION ALL {others}").count() == 210


@pytest.mark.usefixtures("pushing")
def test_no_stream_has_the_predicates_of_another_one(spark: SparkSession, directory: Path) -> None:
    source = spark.readStream.format("moldau").option("subscribe", "t").option("startingOffsets", "earliest")
    rows = source.load(str(directory))
    for query, expected in (("offset < 5", 10), ("true", 600)):
        writer = rows.where(query).writeStream.format("memory").queryName("seen").trigger(availableNow=True)
        assert writer.start().awaitTermination(120)
        assert spark.sql("SELECT 1 FROM seen").count() == expected


def test_tables_are_read_by_sql(spark: SparkSession, directory: Path) -> None:
    batches = load(spark, directory, table="batches")
    assert batches.selectExpr("sum(records)", "min(baseOffset)", "max(lastOffset)").first() == (600, 0, 399)
    assert load(spark, directory, table="latest").where("partition = 1").count() > 0
    topics = spark.read.format("moldau").option("table", "topics").load(str(directory))
    assert sorted(row.topic for row in topics.collect()) == ["empty", "t", "t"]
    segments = spark.read.format("moldau").option("table", "segments").load(str(directory))
    assert segments.where("NOT isGrowing").count() > 1


def test_a_snapshot_is_read_again(spark: SparkSession, directory: Path) -> None:
    from moldau.storage.files.local_files import LocalFiles
    from moldau.tables.options.read_options import parse_options
    from moldau.tables.planning.planner import Planner

    write_checkpoints(directory, {("t", 0): 100, ("t", 1): 200})
    options = parse_options({"path": str(directory), "subscribe": "t"})
    taken = Planner(LocalFiles(), options).snapshot().as_json()
    write_checkpoints(directory, {("t", 0): 400, ("t", 1): 200})
    assert load(spark, directory).count() == 600
    assert load(spark, directory, snapshot=taken).count() == 300
