"""The files that a sweep deletes, and those that it must not."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import RFC_4122

import pytest

pytest.importorskip("pyiceberg", reason="the extra moldau[iceberg] is not installed")

from moldau.lake import orphans
from moldau.lake.opening import catalog_of
from moldau.lake.orphans import ATTEMPT_NAME, attempt_id
from moldau.lake.sink import WriterReplaced
from tests.support.lake_stage import LakeStage


def test_the_id_of_an_attempt_is_a_uuid_that_is_recognised() -> None:
    for random in (bytes(10), b"\xff" * 10):
        made = attempt_id(random)
        assert made.version == 8 and made.variant == RFC_4122 and ATTEMPT_NAME.fullmatch(str(made))
    assert not ATTEMPT_NAME.search("9d6f6c64-6175-8637-add3-fe64e8636f6d")


def test_files_of_other_programs_stay(tmp_path: Path) -> None:
    stage = LakeStage(tmp_path)
    stage.numbered(10)
    stage.follow()
    home = stage.warehouse / "default" / "t"
    version = max(int(each.name[:5]) for each in home.glob("metadata/*.metadata.json"))
    attempt = attempt_id(b"\x07" * 10)
    theirs = [
        home / "data" / "00000-0-9d6f6c64-6175-4637-add3-fe64e8636f6d.parquet",
        home / "metadata" / "9d6f6c64-6175-4637-add3-fe64e8636f6d-m0.avro",
        home / "metadata" / f"{version + 2:05}-9d6f6c64-6175-4637-add3-fe64e8636f6d.metadata.json",
        home / "metadata" / "version-hint.text",
    ]
    orphans = [
        home / "data" / "timestamp_day=2026-11-27" / f"{attempt}-0.parquet",
        home / "data" / f"{attempt}-1.parquet",
        home / "metadata" / f"{attempt}-m0.avro",
        home / "metadata" / f"snap-77-0-{attempt}.avro",
        home / "metadata" / f"{version + 1:05}-8d6f6c64-6175-4637-add3-fe64e8636f6d.metadata.json",
        home / "metadata" / "00000-8d6f6c64-6175-4637-add3-fe64e8636f6d.metadata.json",
    ]
    for each in (*theirs, *orphans):
        each.parent.mkdir(exist_ok=True)
        each.write_bytes(b"")
    follower, _ = stage.open()  # The claim is version + 1.
    assert follower.progress.orphans_count == len(orphans)
    assert all(each.exists() for each in theirs) and not any(each.exists() for each in orphans)
    assert len(stage.rows()) == 10


@pytest.mark.parametrize("is_listed", [False, True])
def test_a_process_that_is_replaced_during_its_sweep_deletes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_listed: bool
) -> None:
    stage = LakeStage(tmp_path)
    stage.numbered(10)
    _, table = stage.open()
    orphan = stage.warehouse / "default" / "t" / "data" / f"{attempt_id(bytes(10))}-0.parquet"
    orphan.parent.mkdir()
    orphan.write_bytes(b"")
    listed = orphans._candidates

    def listed_in_between(*given: Any, **named: Any) -> Iterator[Any]:
        monkeypatch.setattr(orphans, "_candidates", listed)
        found = list(listed(*given, **named)) if is_listed else []
        other = stage.follow()
        stage.numbered(5)
        other.catch_up()
        return iter(found or list(listed(*given, **named)))

    monkeypatch.setattr(orphans, "_candidates", listed_in_between)
    with pytest.raises(WriterReplaced):
        table.sweep()
    assert stage.offsets() == [(0, each) for each in range(15)]
    assert stage.orphans() == [] and stage.verified().findings == []


def test_a_sweep_refuses_the_claim_whose_files_it_deletes(tmp_path: Path) -> None:
    stage = LakeStage(tmp_path)
    stage.numbered(10)
    _, table = stage.open()
    swept: list[list[str]] = []

    def sweep_once(step: str) -> None:
        if step == "manifests written" and not swept:  # of the claim, which is not committed yet
            swept.append(table.sweep())

    follower, _ = stage.open(sweep_once)
    follower.catch_up()
    assert swept and swept[0]
    assert stage.offsets() == [(0, each) for each in range(10)]
    assert stage.orphans() == [] and stage.verified().findings == []


@pytest.mark.parametrize("kind", ["renamed", "dropped and registered"])
def test_a_new_table_leaves_the_files_of_one_that_had_its_name(tmp_path: Path, kind: str) -> None:
    stage = LakeStage(tmp_path)
    stage.numbered(10)
    stage.follow()
    catalog, place = catalog_of(stage.choices()), stage.table().metadata_location
    if kind == "renamed":
        catalog.rename_table("default.t", "default.old")
    else:
        catalog.drop_table("default.t")
        catalog.register_table("default.old", place)
    stage.numbered(5)
    stage.follow()
    stage.follow()
    assert stage.offsets("old") == [(0, each) for each in range(10)]
    assert stage.offsets() == [(0, each) for each in range(15)]
    assert stage.orphans() == [] and stage.verified().findings == []


def test_a_table_that_was_purged_is_made_again_at_its_place(tmp_path: Path) -> None:
    stage = LakeStage(tmp_path)
    stage.numbered(3)
    stage.follow()
    place = stage.table().location()
    shutil.rmtree(place.removeprefix("file://"))
    catalog_of(stage.choices()).drop_table("default.t")
    stage.follow()
    assert stage.table().location() == place and len(stage.rows()) == 3
