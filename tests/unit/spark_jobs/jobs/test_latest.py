"""The job `latest` without a JVM: the reduction in the tasks, the pinned plan, the command's refusals."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from moldau.broker.cli import main
from moldau.spark_jobs.jobs import latest
from moldau.spark_jobs.jobs.latest import LatestJob, LatestReader, latest_batches, plan_latest
from moldau.spark_jobs.jobs.progress import JobProgress
from moldau.tables.options.read_options import parse_options
from moldau.tables.views.latest import last_rows
from tests.support.segments import mixed_batches, mixed_record, write_checkpoints, write_partition


def batch_of(rows: Iterable[tuple[bytes | None, int]]) -> pa.RecordBatch:
    keys, offsets = zip(*rows, strict=True)
    return pa.RecordBatch.from_pydict({"key": pa.array(keys, pa.binary()), "offset": pa.array(offsets, pa.int64())})


def pairs(batch: pa.RecordBatch) -> list[tuple[bytes, int]]:
    return list(zip(batch["key"].to_pylist(), batch["offset"].to_pylist(), strict=True))


def test_the_last_row_of_each_key_stays() -> None:
    batch = batch_of([(b"a", 1), (None, 2), (b"b", 3), (b"a", 4), (b"c", 5), (None, 6)])
    assert pairs(last_rows(batch)) == [(b"b", 3), (b"a", 4), (b"c", 5)]


def test_rows_without_a_key_are_left_out() -> None:
    assert last_rows(batch_of([(None, 1), (None, 2)])).num_rows == 0


def test_a_first_row_without_a_key_takes_nobodys_place() -> None:
    assert pairs(last_rows(batch_of([(None, 0), (b"a", 1)]))) == [(b"a", 1)]


@pytest.mark.parametrize("kept_size_max", [1, 500, 1 << 20])
def test_whatever_a_task_may_keep_nothing_latest_is_lost(kept_size_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latest, "KEPT_SIZE_MAX", kept_size_max)
    draw = random.Random(7)
    rows = [(b"%d" % draw.randrange(40), offset) for offset in range(500)]
    batches = [batch_of(rows[start : start + 20]) for start in range(0, 500, 20)]
    seen: dict[bytes, int] = {}
    for batch in latest_batches(iter(batches)):
        for key, offset in pairs(batch):
            seen[key] = max(offset, seen.get(key, -1))
    assert seen == {key: max(offset for other, offset in rows if other == key) for key, _ in rows}


def test_tasks_reduce_each_partition_by_itself(tmp_path: Path) -> None:
    for partition in (0, 1):
        write_partition(tmp_path, mixed_batches(20, 10), partition=partition)
    write_checkpoints(tmp_path, {("t", 0): 200, ("t", 1): 150})
    reader = LatestReader(parse_options({"path": str(tmp_path), "subscribe": "t"}), ["key", "partition", "offset"])
    (task,) = reader.partitions()
    found = [tuple(row.values()) for batch in reader.read(task) for row in batch.to_pylist()]
    expected = set()
    for partition, end in ((0, 200), (1, 150)):
        last = {mixed_record(offset).key: offset for offset in range(end)}
        expected |= {(key, partition, offset) for key, offset in last.items() if key is not None}
    assert set(found) == expected
    assert len(found) == len(expected)


def test_a_plan_pins_the_offsets(tmp_path: Path) -> None:
    write_partition(tmp_path, mixed_batches(20, 10))
    write_checkpoints(tmp_path, {("t", 0): 150})
    plan = plan_latest(LatestJob({"path": str(tmp_path), "subscribe": "t"}, "out"))
    write_checkpoints(tmp_path, {("t", 0): 200})
    assert json.loads(plan.job.options["startingOffsets"]) == {"t": {"0": 0}}
    assert json.loads(plan.job.options["endingOffsets"]) == {"t": {"0": 150}}
    assert (plan.offsets_count, plan.tasks_count) == (150, 1)


def test_progress_speaks_of_bytes_while_the_topic_is_read() -> None:
    progress = JobProgress(lambda _: None, size=400_000_000, tasks_count=8)
    assert progress.line([(2, 8)], 4.2) == "4 s: read 100.0 MB of 400.0 MB, 2 of 8 tasks"
    assert progress.line([(1, 3)], 9) == "9 s: 1 of 3 tasks"
    assert progress.line([], 10) == "10 s: no task is running"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--topic", "u"], "no partition of u is in the places that are read"),
        (["--topic", "t", "--starting", "latest"], "startingOffsets=latest is not possible in a batch query"),
        (["--topic", "t", "--output", "{path}/t-0"], "is there already; --overwrite replaces it"),
    ],
)
def test_the_command_refuses_before_it_starts_spark(
    tmp_path: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_partition(tmp_path, mixed_batches(1, 10))
    write_checkpoints(tmp_path, {("t", 0): 10})
    given = [argument.format(path=tmp_path) for argument in arguments]
    assert main(["spark", "latest", "--path", str(tmp_path), "--output", str(tmp_path / "out"), *given]) == 1
    assert said in capsys.readouterr().err


def test_the_command_names_the_extra_that_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("moldau.broker.cli.invocation.find_spec", lambda name: None if name == "pyspark" else object())
    assert main(["spark", "latest", "--path", "/data", "--topic", "t", "--output", "out"]) == 1
    assert re.search(r"pyspark is not installed: .*pip install .*\[spark\]", capsys.readouterr().err)
