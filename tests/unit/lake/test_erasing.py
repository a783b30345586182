"""Rows of erased records go from a table, its dead letters and its snapshots, and nothing else does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyiceberg", reason="the extra moldau[iceberg] is not installed")

from moldau.lake.erasing import ErasedOffsets, ErasureResult, check_follows, erase_rows, named_files, rows_left
from moldau.lake.opening import opened_catalog
from moldau.lake.sink import WriterReplaced, ledger_of
from moldau.protocol.primitives import crc32c
from moldau.protocol.record_builder import Record
from moldau.tables.refusals import Refused
from tests.support.lake_stage import START_MS, LakeStage, all_offsets

pytestmark = pytest.mark.slow

NAMED = ErasedOffsets({0: [(3, 3), (7, 9), (25, 25)], 1: [(0, 0)]})
GONE = {(0, 3), (0, 7), (0, 8), (0, 9), (0, 25), (1, 0)}


@pytest.fixture
def stage(tmp_path: Path) -> LakeStage:
    return LakeStage(tmp_path)


def erased(stage: LakeStage, offsets: ErasedOffsets = NAMED, step: Any = None) -> list[ErasureResult]:
    catalog = opened_catalog(str(stage.warehouse), None, {})
    return erase_rows(catalog, stage.table(), offsets, stage.ports(step).sink)


def files_of(stage: LakeStage) -> set[Path]:
    return set(stage.warehouse.rglob("*.parquet"))


def assert_nothing_is_left(stage: LakeStage, files_before: set[Path]) -> None:
    """No snapshot has such a row or names a file that had one, and these files are gone."""
    table = stage.table()
    assert rows_left(table, NAMED) == 0
    named = {each.file_path for snapshot in table.snapshots() for each in named_files(table, snapshot)}
    assert {f"file://{each}" for each in files_of(stage)} == named
    assert files_before - files_of(stage), "a file was replaced"
    assert stage.orphans() == []


def test_rows_of_several_files_go_with_the_snapshots_that_have_them(stage: LakeStage) -> None:
    for _ in range(3):
        stage.numbered(10, days=2)
        stage.numbered(4, partition=1)
        stage.follow()
    before = files_of(stage)
    sums = {str(each): crc32c(each.read_bytes(), 0) for each in before}
    assert rows_left(stage.table(), NAMED) > len(GONE), "older snapshots have them too"
    (told,) = erased(stage)
    assert set(stage.offsets()) == set(all_offsets(stage.ends.items())) - GONE
    assert_nothing_is_left(stage, before)
    assert (told.rows, told.kept_by, told.unread) == (len(GONE), [], []) and told.snapshots_expired >= 3
    assert sum(each["rows_erased"] for each in told.files) == len(GONE)
    for each in told.files:
        assert each["crc"] == f"{sums[each['file'].removeprefix('file://')]:08x}"
    for each in told.written:
        assert each["crc"] == f"{crc32c(Path(each['file'].removeprefix('file://')).read_bytes(), 0):08x}"
    assert stage.verified(with_log=False).findings == [], "the ledger does not miss them"
    stage.numbered(5)
    stage.follow()
    assert set(stage.offsets()) == set(all_offsets(stage.ends.items())) - GONE


def test_what_is_erased_already_changes_nothing(stage: LakeStage) -> None:
    stage.numbered(30)
    follower = stage.follow()
    erased(stage)
    (again,) = erased(stage)
    assert (again.rows, again.files, again.snapshots_expired) == (0, [], 0)
    (other,) = erased(stage, ErasedOffsets({0: [(40, 50)]}))
    assert (other.rows, other.unread) == (0, [0])
    with pytest.raises(WriterReplaced):
        stage.numbered(1)
        follower.catch_up()


def test_a_table_by_key_loses_the_row(stage: LakeStage) -> None:
    stage.append([Record(f"k{each}".encode(), b"1", START_MS) for each in range(30)])
    stage.follow(mode="upsert")
    before = files_of(stage)
    erased(stage)
    assert [row["offset"] for row in stage.rows()] == [each for each in range(30) if (0, each) not in GONE]
    assert_nothing_is_left(stage, before)
    assert stage.verified(with_log=False).findings == []


def test_dead_letters_are_erased_too(stage: LakeStage) -> None:
    stage.append([Record(b"k", b"not framed", START_MS) for _ in range(10)])
    stage.follow(misfits="dead-letter", registry=str(stage.schemas))
    assert len(stage.offsets("t_dead_letters")) == 10
    told = erased(stage)
    assert [each.rows for each in told] == [0, 4]
    assert stage.offsets("t_dead_letters") == [(0, each) for each in range(10) if (0, each) not in GONE]
    assert rows_left(stage.table("t_dead_letters"), NAMED) == 0
    assert stage.verified(with_log=False).findings == []


def test_a_tag_of_another_program_keeps_its_snapshot_and_is_named(stage: LakeStage) -> None:
    stage.numbered(30)
    stage.follow()
    table = stage.table()
    table.manage_snapshots().create_tag(table.current_snapshot().snapshot_id, "audit").commit()
    (told,) = erased(stage)
    assert told.kept_by == ["audit"] and told.stated()["state"] == "not erased"
    assert rows_left(stage.table(), NAMED) == 5
    stage.table().manage_snapshots().remove_tag("audit").commit()
    (told,) = erased(stage)
    assert told.kept_by == [] and told.stated()["state"] == "erased"
    assert rows_left(stage.table(), NAMED) == 0


class Killed(BaseException):
    """The process ends here."""


def test_a_process_that_ends_at_any_step_is_followed_by_one_that_goes_on(tmp_path: Path) -> None:
    steps = 0
    for ends_at in range(40):
        stage = LakeStage(tmp_path / str(ends_at))
        for _ in range(2):
            stage.numbered(20)
            stage.follow()
        before, count = files_of(stage), 0

        def step(_: str, ends_at: int = ends_at) -> None:
            nonlocal count
            if count == ends_at:
                raise Killed
            count += 1

        try:
            erased(stage, step=step)
            break
        except Killed:
            steps += 1
        erased(stage)
        assert_nothing_is_left(stage, before)
        assert len(stage.offsets()) == 35
        assert stage.verified(with_log=False).findings == []
    assert steps >= 5


def test_a_table_of_another_topic_is_refused(stage: LakeStage) -> None:
    stage.numbered(3)
    stage.follow()
    with pytest.raises(Refused, match="does not follow the topic other"):
        check_follows(stage.table(), "other", None)
    known = ledger_of(stage.table())
    assert known is not None and known.offsets == {0: 3}
