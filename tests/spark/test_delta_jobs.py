"""`export` and `latest` into Delta tables with Spark, read back with deltalake."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from moldau.spark_jobs.jobs.export import ExportJob, plan_export, run_export
from moldau.spark_jobs.jobs.latest import LatestJob, plan_latest, run_latest
from moldau.spark_jobs.jobs.progress import JobProgress
from tests.support.segments import mixed_batches, write_checkpoints, write_partition

deltalake = pytest.importorskip("deltalake", reason="the extra moldau[delta] is not installed")


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    directory = tmp_path / "logs"
    directory.mkdir()
    write_partition(directory, mixed_batches(40, 10))
    write_partition(directory, mixed_batches(20, 10), partition=1)
    write_checkpoints(directory, {("t", 0): 150, ("t", 1): 60})
    return directory


def exported(spark: SparkSession, logs: Path, output: Path) -> int:
    options = {"path": str(logs), "subscribe": "t", "includeHeaders": "true", "minPartitions": "4"}
    plan = plan_export(ExportJob(options, "t", str(output), format="delta"))
    run = run_export(spark, plan, JobProgress(print, plan.size, plan.tasks_count))
    return sum(each.rows for each in run.files)


def test_each_record_is_exported_once(spark: SparkSession, logs: Path, tmp_path: Path) -> None:
    output = tmp_path / "table"
    assert exported(spark, logs, output) == 210
    write_checkpoints(logs, {("t", 0): 400, ("t", 1): 200})
    damaged = max((logs / "t-0").glob("*.log"))
    intact = damaged.read_bytes()
    damaged.write_bytes(intact[:-5] + bytes(5))
    with pytest.raises(PySparkException):
        exported(spark, logs, output)
    damaged.write_bytes(intact)
    assert exported(spark, logs, output) == 390
    found = spark.read.parquet(*(each for each in deltalake.DeltaTable(str(output)).file_uris()))
    source = spark.read.format("moldau").option("subscribe", "t").option("includeHeaders", "true").load(str(logs))
    assert found.count() == 600
    assert found.exceptAll(source).count() == source.exceptAll(found).count() == 0
    assert {path.name.partition("-")[0] for path in output.iterdir()} == {"_delta_log", "run"}
    assert len([*output.glob("run-*")]) == 2, "the files of the run that failed are removed"


def test_each_run_of_latest_is_a_version(spark: SparkSession, logs: Path, tmp_path: Path) -> None:
    output = tmp_path / "table"
    counts = []
    for end in (60, 400):
        write_checkpoints(logs, {("t", 0): end, ("t", 1): 0})
        plan = plan_latest(
            LatestJob({"path": str(logs), "subscribe": "t"}, str(output), overwrites=True, format="delta")
        )
        counts.append(run_latest(spark, plan, JobProgress(print, plan.size, plan.tasks_count)))
    table = deltalake.DeltaTable(str(output))
    rows = table.to_pyarrow_table()
    assert rows.num_rows == counts[1] and rows.schema.names == ["key", "value", "partition", "offset", "timestamp"]
    table.load_as_version(1)
    assert table.to_pyarrow_table().num_rows == counts[0] and max(table.to_pyarrow_table()["offset"].to_pylist()) < 60
