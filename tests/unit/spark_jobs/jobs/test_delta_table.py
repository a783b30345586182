"""A Delta table as the ledger of an export: runs that follow each other, compete, and fail. No JVM is needed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from moldau.broker.cli import main
from moldau.spark_jobs.jobs import delta_table
from moldau.spark_jobs.jobs.delta_table import DeltaLedger, DeltaOutput
from moldau.spark_jobs.jobs.export import ExportJob, ledger_of, plan_export, write_file
from moldau.spark_jobs.jobs.export_ledger import ExportedFile, ExportRun
from moldau.tables.options.offset_choices import EARLIEST
from moldau.tables.refusals import Refused
from tests.support.segments import mixed_batches, write_checkpoints, write_partition

deltalake = pytest.importorskip("deltalake", reason="the extra moldau[delta] is not installed")
SCHEMA = pa.schema([("key", pa.binary()), ("offset", pa.int64())])


def ledger(directory: Path) -> DeltaLedger:
    return DeltaLedger(str(directory / "table"), SCHEMA)


def written(staging: Path, first: int, count: int) -> tuple[ExportedFile, ...]:
    rows = pa.RecordBatch.from_pylist([{"key": b"k", "offset": first + each} for each in range(count)], schema=SCHEMA)
    found = write_file(str(staging), f"f-{first}.parquet", iter([rows]))
    assert found is not None
    return (found,)


def run(ledger: DeltaLedger, start: int, end: int, cluster_id: str | None = "c") -> ExportRun:
    number = ledger.begin("t", cluster_id)
    files = written(ledger.staging(number), start, end - start)
    return ExportRun(number, "t", cluster_id, {0: (start, end), 1: (0, 0)}, files)


def offsets(directory: Path) -> list[int]:
    table = deltalake.DeltaTable(str(directory / "table"))
    return sorted(table.to_pyarrow_table().column("offset").to_pylist())


def test_each_run_begins_where_the_last_one_ended(tmp_path: Path) -> None:
    assert ledger(tmp_path).ends("t", "c") == {} and not ledger(tmp_path).is_foreign
    for start, end in ((0, 5), (5, 8)):
        one = ledger(tmp_path)
        one.commit(run(one, start, end))
        assert ledger(tmp_path).ends("t", "c") == {0: end, 1: 0}
    assert offsets(tmp_path) == list(range(8))
    history = deltalake.DeltaTable(str(tmp_path / "table")).history(1)
    assert history[0]["moldau.ranges"] == '{"0": [5, 8], "1": [0, 0]}'


def test_the_ledger_survives_a_checkpoint(tmp_path: Path) -> None:
    one = ledger(tmp_path)
    one.commit(run(one, 0, 5))
    table = deltalake.DeltaTable(str(tmp_path / "table"))
    table.create_checkpoint()
    for old in (tmp_path / "table" / "_delta_log").glob("*.json"):
        old.unlink()
    assert ledger(tmp_path).ends("t", "c") == {0: 5, 1: 0}


def test_a_partition_that_a_run_does_not_have_is_begun_by_a_later_one(tmp_path: Path) -> None:
    for ranges in ({1: (0, 5), 3: (0, 2)}, {0: (0, 4), 1: (5, 6)}, {1: (6, 7)}):
        one = ledger(tmp_path)
        one.commit(ExportRun(one.begin("t", "c"), "t", "c", ranges, ()))
    assert ledger(tmp_path).ends("t", "c") == {0: 4, 1: 7, 2: EARLIEST, 3: 2}


def test_two_runs_of_the_same_offsets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, late = ledger(tmp_path), ledger(tmp_path)
    runs = run(first, 0, 5), run(late, 0, 4)
    first.commit(runs[0])
    with pytest.raises(Refused, match="another run has exported t-0 up to 5"):
        late.commit(runs[1])
    assert not late.staging(1).exists()
    # The other run ends between this look and the commit: the table itself refuses.
    racing = ledger(tmp_path)
    raced = run(racing, 5, 7)
    before = deltalake.DeltaTable(str(tmp_path / "table"))
    other = ledger(tmp_path)
    other.commit(run(other, 5, 6))
    monkeypatch.setattr(delta_table.DeltaOutput, "table", lambda _: before)
    with pytest.raises(Refused, match="nothing of this run was added"):
        racing.commit(raced)
    assert offsets(tmp_path) == list(range(6))


def test_what_is_not_this_export_is_refused(tmp_path: Path) -> None:
    one = ledger(tmp_path)
    one.commit(run(one, 0, 5))
    with pytest.raises(Refused, match="is a table of t, not of u"):
        ledger(tmp_path).ends("u", "c")
    with pytest.raises(Refused, match="is an export of cluster c, not of d"):
        ledger(tmp_path).ends("t", "d")
    with pytest.raises(Refused, match="has the columns key, offset, not key"):
        DeltaOutput(str(tmp_path / "table")).prepare(pa.schema([("key", pa.binary())]), "t", "c")
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "file").touch()
    assert DeltaOutput(str(tmp_path / "theirs")).is_foreign


def test_a_plan_takes_up_the_offsets_of_the_table(tmp_path: Path) -> None:
    write_partition(tmp_path / "logs", mixed_batches(10, 10))
    write_checkpoints(tmp_path / "logs", {("t", 0): 60})
    job = ExportJob({"path": str(tmp_path / "logs"), "subscribe": "t"}, "t", str(tmp_path / "table"), format="delta")
    assert (plan_export(job).is_continued, plan_export(job).offsets_count) == (False, 60)
    one = ledger_of(job)
    number = one.begin("t", None)
    one.commit(ExportRun(number, "t", None, {0: (0, 60)}, ()))
    write_checkpoints(tmp_path / "logs", {("t", 0): 100})
    plan = plan_export(job)
    assert plan.is_continued and [(each.start_offset, each.end_offset) for each in plan.ranges] == [(60, 100)]


def test_without_deltalake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_table, "find_spec", lambda _: None)
    with pytest.raises(Refused, match=r"pip install 'moldau\[delta\]'"):
        DeltaOutput(str(tmp_path))


@pytest.mark.parametrize("job", ["latest", "export"])
def test_the_command_without_deltalake_refuses_before_it_starts_spark(
    tmp_path: Path, job: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_partition(tmp_path / "logs", mixed_batches(1, 10))
    write_checkpoints(tmp_path / "logs", {("t", 0): 10})
    monkeypatch.setattr(delta_table, "find_spec", lambda _: None)
    monkeypatch.setattr("moldau.broker.cli.spark.job_session", lambda *_: pytest.fail("Spark was started"))
    given = ["--path", str(tmp_path / "logs"), "--topic", "t", "--output", str(tmp_path / "out"), "--format", "delta"]
    assert main(["spark", job, *given]) == 1
    assert "format delta: deltalake is not installed: pip install 'moldau[delta]'" in capsys.readouterr().err
