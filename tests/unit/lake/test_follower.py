"""A table that follows a topic: each offset once over restarts, rows by key, schemas that grow, misfits."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyiceberg", reason="the extra moldau[iceberg] is not installed")

from pyiceberg.catalog.sql import SqlCatalog

from moldau.lake.durable_files import SyncedFile
from moldau.lake.ledger import Ledger
from moldau.lake.reading import TopicReading
from moldau.lake.sink import CommitAttempt, CommitConflict, LakeTable, WriterReplaced
from moldau.protocol.record_builder import Record
from moldau.storage.checkpoints.partition_metadata import write_topic_id
from moldau.storage.files.local_files import LocalFiles
from moldau.tables.refusals import DataLost, IsolationDiffers, Refused, TopicRecreated
from moldau.tables.values.registry import ValueNotDecoded
from tests.support.lake_stage import START_MS, LakeStage, all_offsets, framed
from tests.support.segments import write_checkpoints

pytestmark = pytest.mark.slow

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
WIDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}],
}
OTHER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}


@pytest.fixture
def stage(tmp_path: Path) -> LakeStage:
    return LakeStage(tmp_path)


def test_each_offset_is_there_once_over_restarts_and_new_partitions(stage: LakeStage) -> None:
    stage.numbered(300, days=3)
    follower = stage.follow()
    assert follower.progress.rows_count == 300 and follower.progress.lag == 0
    stage.numbered(50)
    stage.numbered(20, partition=1)
    follower.catch_up()
    stage.numbered(5, partition=2)
    stage.follow()
    assert stage.offsets() == all_offsets(stage.ends.items())
    assert {row["value"] for row in stage.rows()} == {str(each).encode() for each in range(350)}
    assert stage.orphans() == []
    assert len(stage.table().inspect.partitions()) == 3  # One for each day.


def test_a_segment_that_is_replaced_while_a_round_is_read_does_not_end_the_topic(
    stage: LakeStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the cleaner does, if file.delete.delay.ms passes between the plan and the read."""
    stage.numbered(30)
    follower, _ = stage.open()
    plan, plans = TopicReading.plan_round, []

    def plan_round(reading: TopicReading, *given: Any) -> Any:
        plans.append(plan(reading, *given))
        if len(plans) == 1:
            for (each,) in plans[0][1]:
                shutil.copy(each.path, f"{each.path}.cleaned")
                Path(f"{each.path}.cleaned").replace(each.path)
        return plans[-1]

    monkeypatch.setattr(TopicReading, "plan_round", plan_round)
    follower.catch_up()
    assert len(plans) == 2 and follower.progress.commits_count == 1
    assert stage.offsets() == all_offsets(stage.ends.items()) and stage.orphans() == []


def test_records_that_each_plan_misses_are_lost(stage: LakeStage, monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(*_: object) -> Any:
        raise DataLost("t-0, offsets 0 to 9: offset 4 is missing")

    stage.numbered(9)
    follower, _ = stage.open()
    monkeypatch.setattr(TopicReading, "batches", lose)
    with pytest.raises(DataLost, match="offset 4 is missing"):
        follower.catch_up()
    assert stage.rows() == [] and stage.orphans() == []


def test_a_round_has_about_the_size_that_was_chosen(stage: LakeStage) -> None:
    for _ in range(30):
        stage.numbered(40)
    follower = stage.follow(round_size=4_000)
    assert follower.progress.commits_count >= 3
    assert stage.offsets() == all_offsets(stage.ends.items())


def test_headers_are_a_column_that_a_table_keeps(stage: LakeStage) -> None:
    stage.append([Record(b"k", b"v", START_MS, (("trace", b"1"), ("none", None)))])
    stage.follow(has_headers=True)
    assert stage.rows()[0]["headers"] == [{"key": "trace", "value": b"1"}, {"key": "none", "value": None}]
    with pytest.raises(Refused, match="--table"):
        stage.open(table="nothing")
    stage.follow(table="other.t")
    with pytest.raises(Refused, match=r"other\.t was begun without --headers"):
        stage.open(table="other.t", has_headers=True)


def test_a_topic_by_key_has_the_last_value_and_no_deleted_key(stage: LakeStage) -> None:
    stage.append([Record(b"a", b"1", START_MS), Record(b"b", b"1", START_MS), Record(b"a", b"2", START_MS)])
    follower = stage.follow(mode="upsert")
    assert [(row["key"], row["value"], row["offset"]) for row in stage.rows()] == [(b"b", b"1", 1), (b"a", b"2", 2)]
    stage.append([Record(b"c", b"1", START_MS), Record(b"b", None, START_MS), Record(b"a", b"3", START_MS)])
    follower.catch_up()
    assert [(row["key"], row["value"]) for row in stage.rows()] == [(b"c", b"1"), (b"a", b"3")]
    stage.append([Record(b"d", b"1", START_MS), Record(b"x", None, START_MS)])
    stage.follow(mode="upsert")
    assert [row["key"] for row in stage.rows()] == [b"c", b"a", b"d"]
    assert stage.table().current_snapshot().summary["total-records"] == "3"
    tasks = list(stage.table().scan().plan_files())
    assert tasks and not any(task.delete_files for task in tasks)
    stage.append([Record(b"d", None, START_MS), Record(b"a", None, START_MS), Record(b"c", None, START_MS)])
    stage.follow(mode="upsert")
    assert stage.rows() == [] and stage.orphans() == []


def test_a_record_without_a_key_does_not_fit_a_table_by_key(stage: LakeStage) -> None:
    stage.append([Record(b"a", b"1", START_MS), Record(None, b"2", START_MS)])
    with pytest.raises(ValueNotDecoded, match="t-0, offset 1: the record has no key; --misfits skip"):
        stage.follow(mode="upsert")
    assert stage.rows() == []
    assert stage.follow(mode="upsert", misfits="skip").progress.misfits_count == 1
    assert stage.offsets() == [(0, 0)]


def test_a_schema_grows_and_old_rows_have_nulls(stage: LakeStage) -> None:
    stage.put_schema(1, ORDER)
    stage.put_schema(2, WIDER)
    stage.append([Record(b"a", framed(1, ORDER, {"id": 7}), START_MS), Record(b"b", None, START_MS)])
    follower = stage.follow(registry=str(stage.schemas))
    first = stage.table().schema().find_field("value.id")
    assert str(first.field_type) == "int"
    value = {"id": 1 << 40, "note": "large"}
    stage.append([Record(b"a", framed(1, ORDER, {"id": 8}), START_MS), Record(b"a", framed(2, WIDER, value), START_MS)])
    follower.catch_up()
    grown = stage.table().schema().find_field("value.id")
    assert str(grown.field_type) == "long" and grown.field_id == first.field_id
    stage.append([Record(b"a", framed(1, ORDER, {"id": 9}), START_MS)])
    stage.follow(registry=str(stage.schemas))
    large = {"id": 1 << 40, "note": "large"}
    old = [{"id": each, "note": None} for each in (7, 8, 9)]
    assert [row["value"] for row in stage.rows()] == [old[0], None, old[1], large, old[2]]
    with pytest.raises(Refused, match="has decoded values: --registry"):
        stage.open()


def test_a_raw_table_does_not_become_a_decoded_one(stage: LakeStage) -> None:
    stage.numbered(1)
    stage.follow()
    with pytest.raises(Refused, match="was begun without --registry"):
        stage.open(registry=str(stage.schemas))


def test_the_first_misfit_suspends_and_is_named(stage: LakeStage) -> None:
    stage.put_schema(1, ORDER)
    stage.put_schema(3, OTHER)
    stage.append([Record(b"a", framed(1, ORDER, {"id": 7}), START_MS)])
    stage.follow(registry=str(stage.schemas))
    bad = [Record(b"a", framed(3, OTHER, {"id": "x"}), START_MS), Record(b"a", b"not framed", START_MS)]
    stage.append([Record(b"a", framed(1, ORDER, {"id": 8}), START_MS), *bad])
    with pytest.raises(ValueNotDecoded, match=r"t-0, offset 2: schema 3 does not fit the table: value\.id is int32"):
        stage.follow(registry=str(stage.schemas))
    assert stage.offsets() == [(0, 0)] and stage.orphans() == []
    follower = stage.follow(registry=str(stage.schemas), misfits="skip")
    assert follower.progress.misfits_count == 2 and stage.offsets() == [(0, 0), (0, 1)]
    assert "1 row, 2 that do not fit" in stage.said[-1]


def test_misfits_become_dead_letters_with_their_reason(stage: LakeStage) -> None:
    stage.put_schema(1, ORDER)
    fit = Record(b"a", framed(1, ORDER, {"id": 7}), START_MS)
    stage.append([fit, Record(b"x", b"not framed", START_MS), fit, Record(b"y", framed(9, ORDER, {"id": 1}), START_MS)])
    chosen = {"registry": str(stage.schemas), "misfits": "dead-letter"}
    stage.follow(**chosen)
    assert stage.offsets() == [(0, 0), (0, 2)]
    letters = stage.rows("t_dead_letters")
    assert [(row["offset"], row["key"], row["value"][:3]) for row in letters] == [
        (1, b"x", b"not"),
        (3, b"y", b"\0\0\0"),
    ]
    assert "not framed" in letters[0]["reason"] and "schema 9 is not in" in letters[1]["reason"]
    stage.append([fit])
    stage.follow(**chosen)
    assert stage.offsets() == [(0, 0), (0, 2), (0, 4)] and len(stage.rows("t_dead_letters")) == 2


def test_a_crash_between_letters_and_rows_leaves_each_record_in_one_table(stage: LakeStage) -> None:
    stage.put_schema(1, ORDER)
    fit = Record(b"a", framed(1, ORDER, {"id": 7}), START_MS)
    stage.append([fit, Record(b"x", framed(2, ORDER, {"id": 8}), START_MS), fit])
    chosen = {"registry": str(stage.schemas), "misfits": "dead-letter"}

    class Crash(BaseException):
        pass

    commits: list[str] = []

    def crash(step: str) -> None:
        commits.append(step)
        if step == "manifests written" and commits.count(step) == 4:  # After two claims and the letters.
            raise Crash

    follower, _ = stage.open(crash, **chosen)
    with pytest.raises(Crash):
        follower.catch_up()
    assert stage.offsets() == [] and stage.offsets("t_dead_letters") == [(0, 1)]
    stage.put_schema(2, ORDER)  # Now the record would fit; it is a dead letter already.
    stage.append([fit])
    stage.follow(**chosen)
    assert stage.offsets() == [(0, 0), (0, 2), (0, 3)] and stage.offsets("t_dead_letters") == [(0, 1)]
    assert stage.orphans() == [] and stage.orphans("t_dead_letters") == []


def test_letters_whose_commit_lost_its_answer_are_not_written_again(
    stage: LakeStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that lives on asks the table of letters how far it is. `tests/lake/test_lost_answers.py` loses the
    answer to each call in turn.
    """
    stage.put_schema(1, ORDER)
    fit = Record(b"a", framed(1, ORDER, {"id": 7}), START_MS)
    stage.append([fit, Record(b"x", b"not framed", START_MS), fit])
    follower, _ = stage.open(registry=str(stage.schemas), misfits="dead-letter")
    committed = CommitAttempt.commit

    def lost(self: CommitAttempt, offsets: Mapping[int, int], **changed: Any) -> Ledger:
        committed(self, offsets, **changed)
        raise ConnectionResetError("the answer is lost")

    with monkeypatch.context() as patched, pytest.raises(ConnectionResetError):
        patched.setattr(CommitAttempt, "commit", lost)
        follower.catch_up()
    assert stage.offsets() == [] and stage.offsets("t_dead_letters") == [(0, 1)]
    follower.catch_up()
    assert stage.offsets() == [(0, 0), (0, 2)] and stage.offsets("t_dead_letters") == [(0, 1)]


def test_a_refused_commit_that_the_table_has_is_done(stage: LakeStage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy has asked the catalog twice: no file of the first answer is deleted."""
    stage.numbered(10)
    follower, _ = stage.open()
    commit = SqlCatalog.commit_table

    def twice(self: SqlCatalog, *arguments: Any) -> Any:
        commit(self, *arguments)
        return commit(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(SqlCatalog, "commit_table", twice)
        follower.catch_up()
    assert follower.progress.conflicts_count == 0
    stage.numbered(10)
    follower.catch_up()
    assert stage.offsets() == all_offsets(stage.ends.items()) and len(stage.rows()) == 20


def test_a_stop_gives_the_round_up(stage: LakeStage) -> None:
    stage.numbered(10)
    follower, _ = stage.open()
    stage.is_stopping = True
    follower.catch_up()
    assert stage.rows() == [] and stage.orphans() == []
    stage.is_stopping = False
    follower.catch_up()
    assert len(stage.rows()) == 10


def test_a_commit_of_another_program_lets_the_round_begin_anew(stage: LakeStage) -> None:
    stage.numbered(10)
    follower = stage.follow()
    stage.numbered(10)
    interfered: list[str] = []

    def interfere(step: str) -> None:
        if step == "files written" and not interfered:
            interfered.append(step)
            table = stage.table()
            table.append(table.scan().to_arrow().slice(0, 0))

    follower, _ = stage.open(interfere)
    interfered.clear()
    follower.catch_up()
    assert follower.progress.conflicts_count == 1 and stage.offsets() == all_offsets(stage.ends.items())
    assert any("the round is made anew" in each for each in stage.said)
    stage.open()
    assert stage.orphans() == []


def test_a_later_process_takes_the_table_over(stage: LakeStage) -> None:
    stage.numbered(10)
    first, _ = stage.open()
    stage.follow()
    stage.numbered(10)
    with pytest.raises(WriterReplaced, match=r"default\.t was claimed by another process"):
        first.catch_up()
    _, table = stage.open()
    attempt = table.begin()
    stage.open()
    with pytest.raises(CommitConflict):
        attempt.commit({0: 20})
    assert len(stage.rows()) == 10


def test_a_topic_that_was_created_again_is_refused(stage: LakeStage) -> None:
    stage.numbered(10)
    write_topic_id(LocalFiles(), f"{stage.logs}/t-0", bytes(15) + b"\1")
    stage.follow()
    write_topic_id(LocalFiles(), f"{stage.logs}/t-0", bytes(15) + b"\2")
    with pytest.raises(TopicRecreated, match=r"table default\.t has the topic t with the id A{21}Q"):
        stage.follow()
    write_topic_id(LocalFiles(), f"{stage.logs}/t-0", bytes(15) + b"\1")
    with pytest.raises(Refused, match="begun with --mode append, and this run has upsert: --mode append continues it"):
        stage.open(mode="upsert")
    with pytest.raises(IsolationDiffers, match="was begun with read_committed"):
        stage.open(options={"path": str(stage.logs)})


def test_records_that_were_deleted_before_they_were_read_are_lost_data(stage: LakeStage) -> None:
    stage.numbered(10)
    stage.follow()
    stage.numbered(30)
    write_checkpoints(stage.logs, stage.ends, {("t", 0): 20})
    with pytest.raises(DataLost, match="offset 10 is asked for, and the log starts at 20"):
        stage.follow()


def test_without_metadata_the_mode_has_to_be_given(stage: LakeStage) -> None:
    stage.numbered(1)
    with pytest.raises(Refused, match="--mode append or --mode upsert"):
        stage.open(mode="auto")


def test_a_topic_that_is_created_again_while_it_is_followed_is_refused(stage: LakeStage) -> None:
    stage.numbered(10)
    write_topic_id(LocalFiles(), f"{stage.logs}/t-0", bytes(15) + b"\1")
    follower = stage.follow()
    write_topic_id(LocalFiles(), f"{stage.logs}/t-0", bytes(15) + b"\2")
    with pytest.raises(TopicRecreated, match="t: the query has read the topic with the id"):
        follower.catch_up()


def test_dead_letters_of_a_deleted_topic_hide_no_record_of_the_new_one(stage: LakeStage) -> None:
    stage.append([Record(b"a", b"not framed", START_MS)])
    write_topic_id(LocalFiles(), f"{stage.logs}/t-0", bytes(15) + b"\1")
    chosen = {"registry": str(stage.schemas), "misfits": "dead-letter"}
    stage.follow(**chosen)
    table = stage.table()
    table.catalog.drop_table(table.name())
    write_topic_id(LocalFiles(), f"{stage.logs}/t-0", bytes(15) + b"\2")
    with pytest.raises(TopicRecreated, match=r"table default\.t_dead_letters has the topic t with the id"):
        stage.follow(**chosen)


def test_the_values_of_a_schema_survive_the_conflict_of_the_round_that_met_it(stage: LakeStage) -> None:
    stage.put_schema(1, ORDER)
    stage.append([Record(b"a", framed(1, ORDER, {"id": 7}), START_MS)])
    armed: list[str] = []

    def interfere(step: str) -> None:
        if step == "files written" and armed:
            armed.clear()
            table = stage.table()
            table.append(table.scan().to_arrow().slice(0, 0))

    follower, _ = stage.open(interfere, registry=str(stage.schemas))
    armed.append("the next round")
    follower.catch_up()
    assert follower.progress.conflicts_count == 1
    assert [row["value"] for row in stage.rows()] == [{"id": 7}]


def test_a_misfit_does_not_count_among_the_records_of_its_key(stage: LakeStage) -> None:
    stage.put_schema(1, ORDER)
    stage.put_schema(2, WIDER)
    chosen = {"mode": "upsert", "registry": str(stage.schemas), "misfits": "skip"}
    stage.append([Record(b"a", framed(1, ORDER, {"id": 1}), START_MS), Record(b"b", b"", START_MS)])
    stage.follow(**chosen)
    wide = {"id": 1 << 40, "note": "x"}
    stage.append([Record(b"a", framed(1, ORDER, {"id": 2}), START_MS), Record(b"a", b"not framed", START_MS)])
    stage.append([Record(b"b", framed(2, WIDER, wide), START_MS), Record(b"c", framed(1, ORDER, {"id": 3}), START_MS)])
    stage.append([Record(b"c", None, START_MS), Record(b"d", None, START_MS)])
    follower = stage.follow(**chosen)
    assert follower.progress.misfits_count == 1
    assert [(row["key"], row["value"]) for row in stage.rows()] == [(b"a", {"id": 2, "note": None}), (b"b", wide)]


def test_a_new_partition_whose_records_are_deleted_is_no_lag(stage: LakeStage) -> None:
    stage.numbered(10)
    follower = stage.follow()
    stage.numbered(5, partition=1)
    write_checkpoints(stage.logs, stage.ends, {("t", 1): 5})
    stage.now_ms += 60_000
    follower.catch_up()
    assert follower.progress.lag == 0 and follower.progress.offsets == {0: 10, 1: 5}
    assert follower.progress.caught_up_ms == stage.now_ms


def test_two_processes_make_the_table_at_the_same_time(stage: LakeStage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.numbered(10)
    stage.follow()
    loaded = LakeTable._loaded
    looks: list[object] = []

    def late(self: LakeTable) -> object:
        looks.append(None)
        return None if len(looks) == 1 else loaded(self)

    monkeypatch.setattr(LakeTable, "_loaded", late)
    stage.follow()
    assert len(looks) == 2 and stage.offsets() == all_offsets(stage.ends.items())
    stage.follow()
    assert stage.orphans() == []


@pytest.mark.parametrize("suffix", [".parquet", ".avro"])
def test_a_full_disk_ends_the_round_and_keeps_no_rows_of_it(
    stage: LakeStage, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    stage.numbered(100, days=2)
    follower, _ = stage.open()
    write = SyncedFile.write

    def full(self: SyncedFile, data: Any) -> int:
        if self._path.endswith(suffix) and self.tell():
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(self, data)

    with monkeypatch.context() as patched, pytest.raises(OSError, match="No space left"):
        patched.setattr(SyncedFile, "write", full)
        follower.catch_up()
    assert list(stage.warehouse.rglob("*.parquet")) == []
    stage.follow()
    assert stage.offsets() == all_offsets(stage.ends.items()) and stage.orphans() == []


def test_a_warehouse_may_have_blanks_and_letters_of_any_script_in_its_path(stage: LakeStage) -> None:
    stage.warehouse = stage.warehouse.parent / "naše jezero"
    stage.numbered(10)
    stage.follow()
    assert stage.offsets() == all_offsets(stage.ends.items()) and stage.orphans() == []
    assert sorted(each.name for each in stage.warehouse.parent.iterdir()) == ["logs", "naše jezero", "schemas"]
    assert (stage.warehouse / "default" / "t" / "data").is_dir()


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_time_past_the_year_9999_does_not_fit(stage: LakeStage, mode: str) -> None:
    """A producer has taken microseconds for milliseconds."""
    stage.append([Record(b"a", b"1", START_MS), Record(b"b", b"2", START_MS * 1000), Record(b"c", b"3", -1)])
    with pytest.raises(ValueNotDecoded, match=f"t-0, offset 1: the timestamp {START_MS * 1000} ms is not in one of"):
        stage.follow(mode=mode)
    assert stage.rows() == []
    stage.follow(mode=mode, misfits="dead-letter")
    assert stage.offsets() == [(0, 0), (0, 2)]
    (letter,) = stage.rows("t_dead_letters")
    assert (letter["offset"], letter["timestamp"].year) == (1, 9999) and str(START_MS * 1000) in letter["reason"]


@pytest.mark.parametrize("time_ms", [START_MS * 1_000_000, (1 << 63) - 1, -(1 << 62), -62_135_596_800_001])
@pytest.mark.parametrize("misfits", ["skip", "dead-letter"])
def test_a_time_of_any_64_bits_is_a_misfit_of_its_record_alone(stage: LakeStage, time_ms: int, misfits: str) -> None:
    """Nanoseconds for milliseconds, or anything else: the records beside it become rows."""
    stage.append([Record(b"a", b"1", START_MS), Record(b"b", b"2", time_ms), Record(b"c", b"3", START_MS)])
    with pytest.raises(ValueNotDecoded, match=r"t-0, offset 1: the timestamp -?\d+ ms.* is not in one of the years"):
        stage.follow()
    follower = stage.follow(misfits=misfits)
    assert stage.offsets() == [(0, 0), (0, 2)] and follower.progress.misfits_count == 1
    if misfits == "dead-letter":
        (letter,) = stage.rows("t_dead_letters")
        assert (letter["offset"], letter["value"]) == (1, b"2") and letter["timestamp"].year in (1, 9999)
