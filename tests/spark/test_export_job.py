"""The job `export`: every record once over several runs, a run that fails, and one that was cut after its commit."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from moldau.spark_jobs.jobs.export import ExportJob, ExportPlan, plan_export, run_export
from moldau.spark_jobs.jobs.export_ledger import ExportLedger, ExportRun
from moldau.spark_jobs.jobs.progress import JobProgress
from moldau.tables.refusals import Refused
from tests.support.segments import mixed_batches, write_checkpoints, write_partition


def planned(directory: Path, output: Path, **options: str) -> ExportPlan:
    return plan_export(ExportJob({"path": str(directory), "subscribe": "t", **options}, "t", str(output)))


def exported(spark: SparkSession, directory: Path, output: Path, **options: str) -> ExportRun:
    plan = planned(directory, output, **options)
    return run_export(spark, plan, JobProgress(print, plan.size, plan.tasks_count))


def test_each_record_is_exported_once(spark: SparkSession, tmp_path: Path) -> None:
    logs, output = tmp_path / "logs", tmp_path / "out"
    logs.mkdir()
    write_partition(logs, mixed_batches(40, 10))
    write_partition(logs, mixed_batches(20, 10), partition=1)
    write_checkpoints(logs, {("t", 0): 150, ("t", 1): 60})
    first = exported(spark, logs, output, includeHeaders="true", minPartitions="5")
    assert sum(each.rows for each in first.files) == 210 and len(first.files) > 1
    assert first.ranges == {0: (0, 150), 1: (0, 60)}
    write_checkpoints(logs, {("t", 0): 400, ("t", 1): 200})
    (output / "_moldau" / "staging-00000007").mkdir()
    second = exported(spark, logs, output, includeHeaders="true")
    assert second.number == 2 and second.ranges == {0: (150, 400), 1: (60, 200)}
    source = spark.read.format("moldau").option("subscribe", "t").option("includeHeaders", "true").load(str(logs))
    rows = spark.read.parquet(str(output))
    assert rows.count() == 600
    assert rows.exceptAll(source).count() == source.exceptAll(rows).count() == 0
    assert [path.name for path in sorted((output / "_moldau").iterdir())] == ["00000001.json", "00000002.json"]
    assert planned(logs, output).offsets_count == 0
    with pytest.raises(Refused, match="begins where the last one ended"):
        planned(logs, output, startingOffsets="earliest")
    # A crash after the commit and before a file was moved: the next run moves it.
    name = second.files[0].name
    ExportLedger(str(output)).staging(2).mkdir()
    os.replace(output / name, ExportLedger(str(output)).staging(2) / name)
    assert ExportLedger(str(output)).begin("t", None) == 3
    assert spark.read.parquet(str(output)).count() == 600


def test_another_programs_directory_is_refused(tmp_path: Path) -> None:
    write_partition(tmp_path / "logs", mixed_batches(2, 10))
    write_checkpoints(tmp_path / "logs", {("t", 0): 20})
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "theirs").touch()
    with pytest.raises(Refused, match="no export has written"):
        planned(tmp_path / "logs", tmp_path / "out")
