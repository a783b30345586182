"""The claimed table: the ledger over snapshots that other programs made, expired or rolled back, and foreign tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyiceberg", reason="the extra moldau[iceberg] is not installed")

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

import moldau
from moldau.lake import follower, sink
from moldau.lake.opening import catalog_of, identifier_of
from moldau.lake.sink import SNAPSHOT_AGE_MS, ledger_of
from moldau.tables.refusals import Refused
from tests.support.lake_stage import LakeStage, all_offsets

VALUES = [str(each).encode() for each in range(20)]


@pytest.fixture
def stage(tmp_path: Path) -> LakeStage:
    made = LakeStage(tmp_path)
    made.numbered(10)
    return made


def compact(stage: LakeStage) -> None:
    """Write the rows anew, as a program does that makes large files of small ones. The table is not
    partitioned, because pyiceberg alone does not write into partitions by time.
    """
    table = stage.table()
    table.overwrite(table.scan().to_arrow())


def test_the_ledger_is_found_behind_the_snapshots_of_other_programs(stage: LakeStage) -> None:
    stage.follow(unit=None)
    compact(stage)
    compact(stage)
    stage.numbered(5)
    stage.follow(unit=None)
    assert stage.offsets() == all_offsets(stage.ends.items())


def test_the_ledger_survives_the_expiry_of_its_snapshot(stage: LakeStage) -> None:
    stage.follow(unit=None)
    compact(stage)
    table = stage.table()
    heads = {each.snapshot_id for each in table.refs().values()}
    table.maintenance.expire_snapshots().by_ids(
        [each.snapshot_id for each in table.snapshots() if each.snapshot_id not in heads]
    ).commit()
    found = ledger_of(stage.table())
    assert found is not None and found.offsets == {0: 10}
    stage.numbered(5)
    stage.follow(unit=None)
    assert stage.offsets() == all_offsets(stage.ends.items())


def test_without_tag_and_snapshot_the_offsets_are_not_known(stage: LakeStage) -> None:
    stage.follow(unit=None)
    compact(stage)
    table = stage.table()
    table.manage_snapshots().remove_tag("moldau-offsets").commit()
    head = table.current_snapshot()
    assert head is not None
    others = [each.snapshot_id for each in table.snapshots() if each.snapshot_id != head.snapshot_id]
    table.maintenance.expire_snapshots().by_ids(others).commit()
    with pytest.raises(Refused, match="the offsets that the table has are not known"):
        stage.follow(unit=None)


def test_a_table_that_is_rolled_back_goes_back_in_the_topic(stage: LakeStage) -> None:
    follower = stage.follow()
    before = stage.table().current_snapshot().snapshot_id
    stage.numbered(10)
    follower.catch_up()
    stage.table().manage_snapshots().rollback_to_snapshot(before).commit()
    assert len(stage.rows()) == 10
    stage.follow()
    assert stage.offsets() == all_offsets(stage.ends.items())


def test_old_snapshots_are_expired_and_their_files_deleted(stage: LakeStage) -> None:
    stage.follow()
    stage.now_ms += SNAPSHOT_AGE_MS * 100
    stage.numbered(10)
    stage.follow()
    stage.follow()
    assert len(stage.table().snapshots()) == 1 and stage.orphans() == []
    assert stage.offsets() == all_offsets(stage.ends.items())


def test_the_number_of_snapshots_is_bounded(stage: LakeStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink, "SNAPSHOTS_MAX", 3)
    monkeypatch.setattr(follower, "SWEEP_COMMITS", 5)
    following = stage.follow()
    for _ in range(4):
        stage.numbered(2)
        following.catch_up()
    assert len(stage.table().snapshots()) == 3
    assert stage.orphans() == [] and following.progress.orphans_count > 0
    assert stage.offsets() == all_offsets(stage.ends.items())


@pytest.mark.parametrize(
    ("properties", "count"),
    [
        ({"history.expire.max-snapshot-age-ms": str((1 << 63) - 1)}, 6),
        ({"history.expire.min-snapshots-to-keep": "4"}, 4),
        ({"history.expire.max-snapshot-age-ms": "0", "history.expire.min-snapshots-to-keep": "2"}, 2),
    ],
)
def test_a_user_says_how_long_snapshots_are_kept(stage: LakeStage, properties: dict[str, str], count: int) -> None:
    following = stage.follow()
    with stage.table().transaction() as changing:
        changing.set_properties(properties)
    stage.now_ms += SNAPSHOT_AGE_MS * 100
    for _ in range(4):
        stage.numbered(2)
        following.catch_up()
    assert len(stage.table().snapshots()) == count
    assert stage.offsets() == all_offsets(stage.ends.items())


def test_a_property_that_is_no_number_is_named(stage: LakeStage) -> None:
    stage.follow()
    with stage.table().transaction() as changing:
        changing.set_properties({"history.expire.max-snapshot-age-ms": "5d"})
    with pytest.raises(Refused, match=r"default\.t: the property history\.expire\.max-snapshot-age-ms is 5d"):
        stage.follow()
    assert stage.offsets() == all_offsets(stage.ends.items())


def test_a_table_of_something_else_is_not_touched(stage: LakeStage) -> None:
    stage.follow()
    rows = stage.table().scan().to_arrow()
    catalog = catalog_of(stage.choices())
    catalog.create_table("default.mine", rows.schema).append(rows)
    with pytest.raises(Refused, match=r"default\.mine has rows that are not of a topic"):
        stage.open(table="default.mine")
    assert len(stage.rows("mine")) == 10


def test_a_table_that_a_user_made_is_filled(stage: LakeStage) -> None:
    catalog = catalog_of(stage.choices())
    catalog.create_namespace("default")
    stage.follow(table="default.other")
    schema = stage.table("other").schema()
    catalog.create_table(identifier_of(stage.choices()), schema)
    stage.follow()
    assert stage.offsets() == all_offsets(stage.ends.items()) and stage.orphans() == []


@pytest.mark.parametrize("changed", ["renamed", "dropped"])
def test_a_column_that_another_program_took_away_loses_no_value(stage: LakeStage, changed: str) -> None:
    follower = stage.follow()
    with stage.table().update_schema() as update:
        if changed == "renamed":
            update.rename_column("value", "payload")
        else:
            update.delete_column("value")
    stage.numbered(5)
    live = moldau.table(stage.warehouse, "t", live=str(stage.logs))
    assert live.to_table(["value"], filter=pc.field("offset") >= 10)["value"].to_pylist() == VALUES[10:15]
    follower.catch_up()
    stage.numbered(5)
    stage.follow()
    rows = stage.rows()
    assert [row["value"] for row in rows] == [None] * 10 + VALUES[10:]
    if changed == "renamed":
        assert [row["payload"] for row in rows] == VALUES[:10] + [None] * 10
    assert stage.verified().findings == []


@pytest.mark.parametrize(
    "changed",
    [
        {"has_headers": True},
        {"mode": "upsert"},
        {"key_type": "string"},
        {"misfits": "dead-letter", "table": "default.{topic}"},
    ],
)
def test_a_run_that_is_refused_leaves_the_table_to_its_writer(stage: LakeStage, changed: dict[str, Any]) -> None:
    follower = stage.follow()
    if "misfits" in changed:  # The table of dead letters is not one.
        catalog_of(stage.choices()).create_table("default.t_dead_letters", pa.schema([("x", pa.int64())])).append(
            pa.table({"x": [1]})
        )
    with pytest.raises(Refused):
        stage.follow(**changed)
    stage.numbered(5)
    follower.catch_up()
    assert len(stage.rows()) == 15
