"""Streaming queries over log directories: triggers, limits, and checkpoints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from moldau.spark_jobs.failures import reason_of
from moldau.spark_jobs.streams.progress import offsets_behind_latest
from moldau.storage.checkpoints.partition_metadata import uuid_text, write_topic_id
from moldau.storage.files.local_files import LocalFiles
from tests.support.segments import mixed_batches, write_checkpoints, write_partition


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    write_partition(tmp_path / "data", mixed_batches(40, 10))
    write_partition(tmp_path / "data", mixed_batches(20, 10), partition=1)
    write_checkpoints(tmp_path / "data", {("t", 0): 400, ("t", 1): 200})
    return tmp_path


def stream(spark: SparkSession, directory: Path, **options: str) -> DataFrame:
    given = {"subscribe": "t", "startingOffsets": "earliest", **options}
    return spark.readStream.format("moldau").options(**given).load(str(directory / "data"))


def run(rows: DataFrame, directory: Path) -> StreamingQuery:
    """What is there now, into a Parquet directory."""
    writer = rows.select("partition", "offset").writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(directory / "checkpoint")).option("path", str(directory / "out"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def offsets(spark: SparkSession, directory: Path) -> list[tuple[int, int]]:
    return sorted(tuple(row) for row in spark.read.parquet(str(directory / "out")).collect())


def test_a_restart_continues_and_new_partitions_appear(spark: SparkSession, directory: Path) -> None:
    first = run(stream(spark, directory, maxOffsetsPerTrigger="150"), directory)
    counts = [each["numInputRows"] for each in first.recentProgress if each["numInputRows"]]
    assert counts == [150, 150, 150, 150]
    source = json.loads(first.recentProgress[0].json)["sources"][0]
    assert source["endOffset"] == {"t": {"0": 100, "1": 50}}
    assert offsets_behind_latest(source)["maxOffsetsBehindLatest"] == 300
    write_partition(directory / "data", mixed_batches(3, 10), partition=2)
    write_partition(directory / "data", mixed_batches(5, 10, first_offset=200), partition=1)
    write_checkpoints(directory / "data", {("t", 0): 400, ("t", 1): 250, ("t", 2): 30})
    second = run(stream(spark, directory), directory)
    assert [each["numInputRows"] for each in second.recentProgress if each["numInputRows"]] == [80]
    expected = [(number, offset) for number, count in enumerate((400, 250, 30)) for offset in range(count)]
    assert offsets(spark, directory) == expected
    third = run(stream(spark, directory), directory)
    assert not any(each["numInputRows"] for each in third.recentProgress)


def test_a_query_reads_on_as_the_log_grows(spark: SparkSession, directory: Path) -> None:
    rows = stream(spark, directory, startingOffsets="latest")
    query = rows.writeStream.format("memory").queryName("grown").trigger(processingTime="0 seconds").start()
    try:
        for first in (400, 450):
            query.processAllAvailable()
            write_partition(directory / "data", mixed_batches(5, 10, first_offset=first))
            write_checkpoints(directory / "data", {("t", 0): first + 50, ("t", 1): 200})
        query.processAllAvailable()
        found = sorted(row.offset for row in spark.table("grown").collect())
        assert found == list(range(400, 500))
    finally:
        query.stop()


def test_lost_records_fail_the_query(spark: SparkSession, directory: Path) -> None:
    run(stream(spark, directory, maxOffsetsPerTrigger="600"), directory)
    write_partition(directory / "data", mixed_batches(5, 10, first_offset=400))
    write_checkpoints(directory / "data", {("t", 0): 450, ("t", 1): 200}, {("t", 0): 420})
    with pytest.raises(PySparkException) as problem:
        run(stream(spark, directory), directory)
    assert reason_of(problem.value).startswith("t-0: offset 400 is asked for, and the log starts at 420")
    with pytest.raises(PySparkException) as refused:
        run(stream(spark, directory, endingOffsets="latest"), directory)
    assert reason_of(refused.value) == "endingOffsets is not possible in a streaming query"


def test_a_checkpoint_of_an_earlier_version(spark: SparkSession, directory: Path) -> None:
    """It has no id of the topic, as one of the connector: it continues, and notes the id with the next trigger."""

    def checkpoint() -> str:
        return max((directory / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda each: int(each.name)).read_text()

    run(stream(spark, directory), directory)
    assert "#" not in checkpoint()
    old, new = bytes(15) + b"\1", bytes(15) + b"\2"
    for partition in (0, 1):
        write_topic_id(LocalFiles(), str(directory / "data" / f"t-{partition}"), old)
    write_partition(directory / "data", mixed_batches(1, 10, first_offset=400))
    write_checkpoints(directory / "data", {("t", 0): 410, ("t", 1): 200})
    second = run(stream(spark, directory), directory)
    assert [each["numInputRows"] for each in second.recentProgress if each["numInputRows"]] == [10]
    assert f"t#{uuid_text(old)}" in checkpoint()
    for partition in (0, 1):
        write_topic_id(LocalFiles(), str(directory / "data" / f"t-{partition}"), new)
    with pytest.raises(PySparkException) as problem:
        run(stream(spark, directory), directory)
    assert reason_of(problem.value).startswith(f"t: the query has read the topic with the id {uuid_text(old)}")


def test_a_topic_that_was_created_again(spark: SparkSession, directory: Path) -> None:
    """The checkpoint has the id of the topic; without failOnDataLoss the new topic is read from its first record."""
    old, new = bytes(15) + b"\1", bytes(15) + b"\2"
    for partition in (0, 1):
        write_topic_id(LocalFiles(), str(directory / "data" / f"t-{partition}"), old)
    run(stream(spark, directory), directory)
    for partition in (0, 1):
        write_topic_id(LocalFiles(), str(directory / "data" / f"t-{partition}"), new)
    with pytest.raises(PySparkException) as problem:
        run(stream(spark, directory), directory)
    assert reason_of(problem.value).startswith(f"t: the query has read the topic with the id {uuid_text(old)}")
    again = run(stream(spark, directory, failOnDataLoss="false"), directory)
    assert [each["numInputRows"] for each in again.recentProgress if each["numInputRows"]] == [600]
    third = run(stream(spark, directory), directory)
    assert not any(each["numInputRows"] for each in third.recentProgress)
