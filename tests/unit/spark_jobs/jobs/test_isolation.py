"""The jobs read committed by default: an aborted write is no state, no exported row and no replayed record."""

from __future__ import annotations

import argparse
from pathlib import Path

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from moldau.broker.cli.spark import add_arguments
from moldau.spark_jobs.jobs import replay
from moldau.spark_jobs.jobs.export import ExportJob, ExportWriter, plan_export
from moldau.spark_jobs.jobs.latest import LatestJob, LatestReader, plan_latest
from moldau.spark_jobs.jobs.replay import (
    ReplayJob,
    ReplayTarget,
    TargetTopic,
    options_of_ranges,
    plan_replay,
    records_in,
)
from moldau.storage.files.local_files import LocalFiles
from moldau.tables.options.read_options import parse_options
from moldau.tables.planning.planner import plan
from tests.support.segments import write_checkpoints, write_partition
from tests.support.transactional_log import TransactionalLog

UNCOMMITTED = {"kafka.isolation.level": "read_uncommitted"}
COMMITTED_OFFSETS = [0, 1, 5, 6, 8, 9]
ALL_OFFSETS = [0, 1, 2, 3, 5, 6, 8, 9, 10]


@pytest.fixture
def options(tmp_path: Path) -> dict[str, str]:
    """Offsets 2 and 3 are aborted (the marker is at 4), 5 and 6 committed (7), 8 and 9 plain, 10 and later open."""
    log = TransactionalLog()
    log.append(2)
    log.append(2, producer_id=1)
    log.end(1, commits=False)
    log.append(2, producer_id=1)
    log.end(1, commits=True)
    log.append(2)
    log.append(1, producer_id=1)
    write_partition(tmp_path, [each.data for each in log.batches])
    write_checkpoints(tmp_path, {("t", 0): log.end_offset})
    return {"path": str(tmp_path), "subscribe": "t"}


@pytest.mark.parametrize(("chosen", "offsets"), [({}, COMMITTED_OFFSETS), (UNCOMMITTED, ALL_OFFSETS)])
def test_latest(options: dict[str, str], chosen: dict[str, str], offsets: list[int]) -> None:
    planned = plan_latest(LatestJob(options | chosen, "out"))
    reader = LatestReader(parse_options(planned.job.options), ["key", "offset"])
    rows = [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]
    assert {row["key"]: row["offset"] for row in rows} == {b"k%d" % (offset % 7): offset for offset in offsets}


@pytest.mark.parametrize(("chosen", "offsets"), [({}, COMMITTED_OFFSETS), (UNCOMMITTED, ALL_OFFSETS)])
def test_export(options: dict[str, str], chosen: dict[str, str], offsets: list[int], tmp_path: Path) -> None:
    planned = plan_export(ExportJob(options | chosen, "t", str(tmp_path / "out")))
    (tmp_path / "staging").mkdir()
    reader = ExportWriter(parse_options(planned.job.options), str(tmp_path / "staging"), "zstd")
    named = [batch.to_pylist()[0]["name"] for task in reader.partitions() for batch in reader.read(task)]
    found = [row["offset"] for name in named for row in pq.read_table(tmp_path / "staging" / name).to_pylist()]
    assert found == offsets


@pytest.mark.parametrize(("chosen", "offsets"), [({}, COMMITTED_OFFSETS), (UNCOMMITTED, ALL_OFFSETS)])
def test_replay(
    options: dict[str, str], chosen: dict[str, str], offsets: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "describe_target", lambda _: TargetTopic("cluster", None, 1))
    planned = plan_replay(ReplayJob(options | chosen, "t", ReplayTarget(("localhost:9092",), "again")))
    read = options_of_ranges(planned.job, planned.plan.round_ranges(0))
    tasks = plan(LocalFiles(), parse_options(read))
    assert [record.offset for task in tasks for each in task for record in records_in(each)] == offsets


@pytest.mark.parametrize(
    ("job", "needed"),
    [
        ("latest", ["--path", "d", "--output", "o"]),
        ("export", ["--path", "d", "--output", "o"]),
        ("replay", ["--path", "d", "--bootstrap", "b:1", "--to", "again"]),
    ],
)
def test_the_flags(job: str, needed: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    words = [job, "--topic", "t", *needed]
    assert parser.parse_args(words).isolation == "read_committed"
    assert parser.parse_args([*words, "--read-committed"]).isolation == "read_committed"
    assert parser.parse_args([*words, "--read-uncommitted"]).isolation == "read_uncommitted"
    with pytest.raises(SystemExit):
        parser.parse_args([job, "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "where a transaction is open, unless --read-uncommitted is given" in said
