"""`moldau spark latest`: the last value of each key, as a user runs it and on the Java of the package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as parquet  # type: ignore[import-untyped]
import pytest
from pyspark.sql import SparkSession

from moldau.protocol.record_builder import Record
from moldau.spark_jobs.jobs.latest import LatestJob, plan_latest, run_latest
from moldau.spark_jobs.jobs.progress import JobProgress
from tests.support.segments import mixed_batches, write_checkpoints, write_partition

Last = dict[bytes, tuple[int, int, bytes | None]]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Partition 1 has the same keys as partition 0, and later timestamps from offset 400 to 500 only."""
    write_partition(tmp_path, mixed_batches(40, 10))
    write_partition(tmp_path, mixed_batches(10, 10, first_offset=400), partition=1)
    write_checkpoints(tmp_path, {("t", 0): 400, ("t", 1): 500})
    return tmp_path


def written(output: Path) -> Last:
    rows = parquet.read_table(output).to_pylist()
    found = {row["key"]: (row["partition"], row["offset"], row["value"]) for row in rows}
    assert len(found) == len(rows), "a key is there once"
    return found


def latest_by_hand(*, keeps_tombstones: bool) -> Last:
    """Per partition by offset, between the partitions by timestamp."""
    from moldau.protocol.batch_iterator import iterate_batches
    from moldau.protocol.record_reader import records_of

    per_partition: list[dict[bytes, Record]] = []
    for batches in (mixed_batches(40, 10), mixed_batches(10, 10, first_offset=400)):
        data = b"".join(batches)
        records = [each for position, header in iterate_batches(data) for each in records_of(data, position, header)]
        per_partition.append({record.key: record for record in records if record.key is not None})
    found: Last = {}
    for key in per_partition[0].keys() | per_partition[1].keys():
        candidates = [(last[key], partition) for partition, last in enumerate(per_partition) if key in last]
        record, partition = max(candidates, key=lambda each: (each[0].timestamp, each[1]))
        if keeps_tombstones or record.value is not None:
            found[key] = (partition, record.offset, record.value)
    return found


@pytest.mark.parametrize("keeps_tombstones", [False, True])
def test_the_last_value_of_each_key_is_written(spark: SparkSession, directory: Path, keeps_tombstones: bool) -> None:
    output = directory / "out.parquet"
    options = {"path": str(directory), "subscribe": "t", "minPartitions": "6"}
    plan = plan_latest(LatestJob(options, str(output), keeps_tombstones=keeps_tombstones))
    assert plan.tasks_count > 3
    count = run_latest(spark, plan, JobProgress(lambda _: None, plan.size, plan.tasks_count))
    found = written(output)
    assert found == latest_by_hand(keeps_tombstones=keeps_tombstones)
    assert count == len(found)
    assert any(value is None for _, _, value in found.values()) == keeps_tombstones


def test_progress_is_said_while_the_job_runs(spark: SparkSession, directory: Path) -> None:
    said: list[str] = []
    plan = plan_latest(LatestJob({"path": str(directory), "subscribe": "t"}, str(directory / "out.parquet")))
    run_latest(spark, plan, JobProgress(said.append, plan.size, plan.tasks_count, interval_seconds=0.01))
    assert any("tasks" in line for line in said)


def test_the_command_runs_on_a_machine_without_java(directory: Path) -> None:
    """As a user starts it; a first `java` on the PATH that does not run stands for none."""
    broken = directory / "bin" / "java"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    variables = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    variables["PATH"] = f"{broken.parent}:{variables['PATH']}"
    output = directory / "out.parquet"
    command = [sys.executable, "-m", "moldau.broker.cli", "spark", "latest", "--path", str(directory), "--topic", "t"]
    arguments = ["--output", str(output), "--master", "local[2]"]
    done = subprocess.run([*command, *arguments], env=variables, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    expected = latest_by_hand(keeps_tombstones=False)
    assert written(output) == expected
    assert done.stdout == f"{len(expected)} keys of t are in {output}\n"
    assert "up to 500 records of 2 partitions" in done.stderr


def test_a_damaged_segment_is_told_in_the_last_line_and_without_traces(directory: Path) -> None:
    """Neither those of Java, nor those of workers whose reader hung up."""
    log = max((directory / "t-0").glob("*.log"))
    log.write_bytes(log.read_bytes()[:-5] + bytes(5))
    command = [sys.executable, "-m", "moldau.broker.cli", "spark", "latest", "--path", str(directory), "--topic", "t"]
    arguments = ["--output", str(directory / "out.parquet"), "--master", "local[2]"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == 1 and done.stdout == "", done.stderr
    lines = done.stderr.splitlines()
    assert lines[-1].startswith("moldau: t-0, offsets ") and f"{log}, position " in lines[-1]
    assert lines[-1].endswith("the checksum of the batch does not match")
    assert not [line for line in lines if "Traceback" in line or "ERROR" in line or line.startswith("\tat ")], (
        done.stderr
    )
