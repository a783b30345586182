"""The files that a sweep deletes, and those that it must not."""

from __future__ import annotations

from pathlib import Path
from uuid import RFC_4122

import pytest

pytest.importorskip("pyiceberg", reason="the extra moldau[iceberg] is not installed")

from moldau.lake.orphans import ATTEMPT_NAME, attempt_id
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
