"""Small files are joined: the rows stay, the ledger stays, and other files are left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyiceberg", reason="the extra moldau[iceberg] is not installed")

from moldau.lake import compaction
from moldau.lake.sink import ledger_of
from moldau.protocol.record_builder import Record
from tests.support.lake_stage import START_MS, LakeStage, all_offsets

pytestmark = pytest.mark.slow


@pytest.fixture
def stage(tmp_path: Path) -> LakeStage:
    return LakeStage(tmp_path)


def files_count(stage: LakeStage) -> int:
    return len(list(stage.table().scan().plan_files()))


def test_files_of_a_partition_become_one_and_the_rows_stay(stage: LakeStage) -> None:
    for _ in range(4):
        stage.numbered(20, days=2)
        stage.follow(compact_files_min=5)
    assert files_count(stage) == 8
    stage.numbered(20, days=2)
    follower = stage.follow(compact_files_min=5)
    assert follower.progress.compacted_count == 10 and stage.said[-1] == "10 small files were joined"
    assert files_count(stage) == 2 and stage.offsets() == all_offsets(stage.ends.items())
    snapshot = stage.table().current_snapshot()
    assert snapshot.summary.operation.value == "replace"
    assert snapshot.summary["total-records"] == "100" and snapshot.summary["total-data-files"] == "2"
    stage.numbered(1)
    stage.follow()
    assert stage.offsets() == all_offsets(stage.ends.items()) and stage.orphans() == []
    assert follower.progress.rows_count == 20


def test_the_ledger_of_a_compaction_is_that_of_the_rows(stage: LakeStage) -> None:
    for _ in range(3):
        stage.numbered(5)
        follower = stage.follow(compact_files_min=3)
    assert files_count(stage) == 1
    known = ledger_of(stage.table())
    assert known is not None and known.offsets == {0: 15}
    follower.catch_up()
    assert stage.offsets() == all_offsets(stage.ends.items())


def test_files_of_other_sizes_are_left_alone(stage: LakeStage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.append([Record(b"k", bytes(each % 251 for each in range(size)), START_MS) for size in range(0, 4_000, 7)])
    stage.follow()
    for _ in range(2):
        stage.numbered(1)
        stage.follow()
    assert stage.follow(compact_files_min=3).progress.compacted_count == 0
    stage.numbered(1)
    assert stage.follow(compact_files_min=3).progress.compacted_count == 3
    monkeypatch.setattr(compaction, "SMALL_SIZE", 1)
    for _ in range(3):
        stage.numbered(1)
        stage.follow()
    assert stage.follow(compact_files_min=3).progress.compacted_count == 0
    assert stage.offsets() == all_offsets(stage.ends.items())


def test_a_table_by_key_keeps_its_rows(stage: LakeStage) -> None:
    for number in range(4):
        key = f"k{number}".encode()
        stage.append([Record(key, b"1", START_MS)])
        stage.follow(mode="upsert", compact_files_min=3)
    assert files_count(stage) == 2
    stage.append([Record(b"k1", None, START_MS)])
    stage.follow(mode="upsert", compact_files_min=3)
    assert [row["key"] for row in stage.rows()] == [b"k0", b"k2", b"k3"]


def test_a_commit_of_another_program_ends_the_compaction_and_not_the_follower(stage: LakeStage) -> None:
    interfered: list[str] = []

    def interfere(step: str) -> None:
        if step == "files written":
            interfered.append(step)
            if len(interfered) == 3:  # After the claim and the rows.
                table = stage.table()
                table.append(table.scan().to_arrow().slice(0, 0))

    for _ in range(2):
        stage.numbered(5)
        stage.follow()
    stage.numbered(5)
    follower, _ = stage.open(interfere, compact_files_min=3)
    follower.catch_up()
    assert len(interfered) == 3 and follower.progress.compacted_count == 0
    follower.catch_up()
    assert follower.progress.compacted_count == 3
    assert stage.offsets() == all_offsets(stage.ends.items())
    stage.open()
    assert stage.orphans() == []


def test_files_that_are_full_though_they_are_small_are_left_alone(
    stage: LakeStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moldau.lake.data_files.BUFFER_SIZE", 1)
    monkeypatch.setattr("moldau.lake.opening.FILE_SIZE_MAX", 1)
    for _ in range(3):
        stage.numbered(20)
        follower = stage.follow(compact_files_min=2, unit=None)
    assert follower.progress.compacted_count == 0
    assert stage.offsets() == all_offsets(stage.ends.items()) and stage.orphans() == []
    written = len(stage.steps)
    follower.catch_up()
    assert stage.steps[written:] == [], "they are not written anew each time"
