"""A topic that was deleted and created again: what earlier runs have noted is not taken for the new one."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from moldau.spark_jobs.jobs import replay
from moldau.spark_jobs.jobs.export import ExportJob, ExportPlan, ledger_of, plan_export, write_file
from moldau.spark_jobs.jobs.export_ledger import ExportLedger, ExportRun
from moldau.spark_jobs.jobs.job_options import ISOLATION, isolation_of
from moldau.spark_jobs.jobs.replay import ReplayJob, ReplayTarget, TargetTopic, discard_replay, plan_replay
from moldau.spark_jobs.jobs.replay_state import DoneRounds, ReplayState
from moldau.storage.checkpoints.partition_metadata import uuid_text, write_topic_id
from moldau.storage.files.local_files import LocalFiles
from moldau.tables.refusals import DataLost, IsolationDiffers, TopicRecreated
from tests.support.segments import mixed_batches, write_checkpoints, write_partition

OLD, NEW = bytes.fromhex("ff" * 8 + "01" * 8), bytes.fromhex("7f" * 8 + "02" * 8)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    directory = tmp_path / "logs"
    for partition in (0, 1):
        write_partition(directory, mixed_batches(10, 10), partition=partition)
    write_checkpoints(directory, {("t", 0): 100, ("t", 1): 60})
    name_topic(directory, OLD)
    return directory


def name_topic(logs: Path, topic_id: bytes) -> None:
    for directory in logs.glob("t-*"):
        write_topic_id(LocalFiles(), str(directory), topic_id)


def create_again(logs: Path) -> None:
    """The new topic has one partition, whose log is longer than that of the old one was."""
    for directory in logs.glob("t-*"):
        for file in directory.iterdir():
            file.unlink()
        directory.rmdir()
    write_partition(logs, mixed_batches(20, 10))
    write_checkpoints(logs, {("t", 0): 200})
    name_topic(logs, NEW)


def export_job(logs: Path, form: str, *, is_anew: bool = False) -> ExportJob:
    options = {"path": str(logs), "subscribe": "t"}
    return ExportJob(options, "t", str(logs.parent / "out"), format=form, is_anew=is_anew)


def committed(plan: ExportPlan) -> ExportRun:
    """What a run commits, with a row for each partition in place of those that its tasks would write."""
    ledger = ledger_of(plan.job)
    number = ledger.begin("t", plan.cluster_id)
    files = []
    if plan.job.format == "delta":
        from moldau.tables.decoding.decoded_rows import COLUMN_TYPES

        schema = pa.schema([pa.field(name, COLUMN_TYPES[name]) for name in plan.job.columns])
    else:
        schema = pa.schema([("topic", pa.string()), ("offset", pa.int64())])
    for each in plan.ranges:
        row = pa.RecordBatch.from_pylist([{"topic": plan.topic_id, "offset": each.start_offset}], schema=schema)
        file = write_file(str(ledger.staging(number)), f"{number}-{each.key[1]}.parquet", iter([row]))
        assert file is not None
        files.append(file)
    ranges = {each.key[1]: (each.start_offset, each.end_offset) for each in plan.ranges}
    isolation = isolation_of(plan.job.options)
    run = ExportRun(number, "t", plan.cluster_id, ranges, tuple(files), plan.topic_id, plan.job.is_anew, isolation)
    ledger.commit(run)
    return run


def rows_at(output: Path, form: str) -> list[tuple[str, int]]:
    """(topic id, offset) of each row."""
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    if form == "delta":
        from deltalake import DeltaTable

        table = DeltaTable(str(output)).to_pyarrow_table()
    else:
        table = pa.concat_tables([pq.read_table(each) for each in sorted(output.glob("*.parquet"))])
    return sorted((row["topic"], row["offset"]) for row in table.to_pylist())


@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_an_export_does_not_continue_with_another_topic(logs: Path, form: str) -> None:
    if form == "delta":
        pytest.importorskip("deltalake", reason="the extra moldau[delta] is not installed")
    output = logs.parent / "out"
    committed(plan_export(export_job(logs, form)))
    committed(plan_export(export_job(logs, form)))
    assert rows_at(output, form) == [(uuid_text(OLD), offset) for offset in (0, 0, 60, 100)]
    create_again(logs)
    with pytest.raises(TopicRecreated) as refused:
        plan_export(export_job(logs, form))
    assert (
        uuid_text(OLD) in str(refused.value) and uuid_text(NEW) in str(refused.value) and "--anew" in str(refused.value)
    )
    anew = plan_export(export_job(logs, form, is_anew=True))
    assert not anew.is_continued and [(each.start_offset, each.end_offset) for each in anew.ranges] == [(0, 200)]
    committed(anew)
    assert rows_at(output, form) == [(uuid_text(NEW), 0)], "the rows of the topic that was deleted are replaced"
    continued = plan_export(export_job(logs, form))
    assert continued.is_continued and not continued.offsets_count
    # A partition that is added has an end of the old topic no more.
    write_partition(logs, mixed_batches(3, 10), partition=1)
    write_checkpoints(logs, {("t", 0): 200, ("t", 1): 30})
    name_topic(logs, NEW)
    assert plan_export(export_job(logs, form)).offsets_count == 30
    name_topic(logs, OLD)
    with pytest.raises(TopicRecreated):
        plan_export(export_job(logs, form))


def test_the_next_run_removes_what_a_run_that_began_anew_has_left(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It died after its document was there: the files of the old topic are beside those of the new one."""
    output = logs.parent / "out"
    committed(plan_export(export_job(logs, "parquet")))
    create_again(logs)
    with monkeypatch.context() as patched:
        patched.setattr(ExportLedger, "_remove_replaced", lambda _: None)
        committed(plan_export(export_job(logs, "parquet", is_anew=True)))
    assert len(rows_at(output, "parquet")) == 3
    assert plan_export(export_job(logs, "parquet")).is_continued
    assert ExportLedger(str(output)).begin("t", None) == 3
    assert rows_at(output, "parquet") == [(uuid_text(NEW), 0)]
    assert [path.name for path in sorted((output / "_moldau").glob("*.json"))] == ["00000002.json"]


def test_a_ledger_without_an_id_continues(logs: Path) -> None:
    ledger = ExportLedger(str(logs.parent / "out"))
    number = ledger.begin("t", None)
    ledger.commit(ExportRun(number, "t", None, {0: (0, 40), 1: (0, 0)}, ()))
    document = logs.parent / "out" / "_moldau" / "00000001.json"
    document.write_text("\n".join(line for line in document.read_text().splitlines() if "topic_id" not in line))
    assert plan_export(export_job(logs, "parquet")).offsets_count == 120


@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_an_export_does_not_continue_with_another_isolation_level(logs: Path, form: str) -> None:
    job = export_job(logs, form)
    uncommitted = replace(job, options=job.options | {ISOLATION: "read_uncommitted"})
    committed(plan_export(job))
    with pytest.raises(IsolationDiffers, match="of t with read_committed, and this run has read_uncommitted: --read-"):
        plan_export(uncommitted)
    assert plan_export(job).is_continued
    committed(plan_export(replace(uncommitted, is_anew=True)))
    with pytest.raises(IsolationDiffers, match="with read_uncommitted, and this run has read_committed"):
        plan_export(job)
    assert plan_export(uncommitted).is_continued


def test_an_export_of_an_earlier_version_continues_with_either_isolation_level(logs: Path) -> None:
    job = export_job(logs, "parquet")
    committed(plan_export(job))
    (document,) = (logs.parent / "out" / "_moldau").glob("*.json")
    described = json.loads(document.read_text())
    assert described.pop("isolation") == "read_committed"
    document.write_text(json.dumps(described))
    assert plan_export(replace(job, options=job.options | {ISOLATION: "read_uncommitted"})).is_continued


def test_an_export_whose_log_is_shorter_than_its_ledger_is_told(logs: Path) -> None:
    """The topic has no id in an old directory; its log ends before the offset at which the run would begin."""
    committed(plan_export(export_job(logs, "parquet")))
    write_checkpoints(logs, {("t", 0): 90, ("t", 1): 60})
    with pytest.raises(DataLost, match="t-0: offset 100 is asked for, and the log ends at 90"):
        plan_export(export_job(logs, "parquet"))


def replay_job(logs: Path, *, is_anew: bool = False) -> ReplayJob:
    target = ReplayTarget(("localhost:9092",), "again")
    return ReplayJob({"path": str(logs), "subscribe": "t"}, "t", target, str(logs.parent / "state"), is_anew=is_anew)


@pytest.mark.parametrize("created", ["source", "target"])
def test_a_replay_does_not_continue_with_another_topic(
    logs: Path, created: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [uuid_text(OLD)]
    monkeypatch.setattr(replay, "describe_target", lambda _: TargetTopic("cluster", ids[-1], 2))
    aborted: list[str] = []
    monkeypatch.setattr(replay, "abort_open", lambda _, plan: aborted.append(plan.replay_id))
    first = plan_replay(replay_job(logs))
    state = ReplayState(str(logs.parent / "state"))
    state.write_plan(first.plan)
    state.note_done(DoneRounds(0, 0, 3))
    state.log.write(first.plan.replay_id, 0, [])
    assert plan_replay(replay_job(logs)).plan == first.plan
    if created == "source":
        create_again(logs)
    else:
        ids.append(uuid_text(NEW))
    with pytest.raises(
        TopicRecreated, match="replay with t of the id" if created == "source" else "with again of the id"
    ):
        plan_replay(replay_job(logs))
    anew = plan_replay(replay_job(logs, is_anew=True))
    assert anew.plan.replay_id != first.plan.replay_id and (anew.done, anew.records) == (0, 0)
    discard_replay(state, anew.job.target)
    assert aborted == [first.plan.replay_id] and os.listdir(state.directory) == []


def test_files_of_a_plan_go_last(logs: Path) -> None:
    """A plan that is written between two removals would take the rounds of the old one for its own."""
    state = ReplayState(str(logs.parent / "state"))
    removed: list[str] = []
    state.directory.mkdir()
    for name in ("replay.json", "id-0.json", "done.json", "zzz-9.json"):
        (state.directory / name).touch()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Path, "unlink", lambda path, missing_ok=False: removed.append(path.name))
        state.discard()
    assert removed == ["done.json", "id-0.json", "zzz-9.json", "replay.json"]
