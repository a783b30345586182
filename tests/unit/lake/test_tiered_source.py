"""A table follows a topic whose older segments are in a tiered storage: alone, and with a log directory beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyiceberg", reason="the extra moldau[iceberg] is not installed")

from moldau.tables.refusals import DataLost, Refused
from tests.support.lake_stage import LakeStage, all_offsets
from tests.support.s3_server import CREDENTIALS, S3Server, bucket_of
from tests.support.tiered_copy import copy_sealed, tiered_directory

COMMITTED = {"kafka.isolation.level": "read_committed"}


@pytest.fixture
def stage(tmp_path: Path) -> LakeStage:
    """A topic with some sealed segments."""
    made = LakeStage(tmp_path)
    for _ in range(14):
        made.numbered(400)
    return made


@pytest.fixture
def server() -> Iterator[S3Server]:
    made = S3Server()
    yield made
    made.close()


def drop_first(logs: Path, count: int) -> None:
    """What local retention does: the first segments go."""
    for log in sorted((logs / "t-0").glob("*.log"))[:count]:
        for file in log.parent.glob(f"{log.stem}.*"):
            file.unlink()


def test_rows_come_from_the_tier_and_then_from_the_log(tmp_path: Path, stage: LakeStage) -> None:
    tier = tmp_path / "tier"
    sealed = tiered_directory(tier, stage.logs)
    assert len(sealed) >= 3
    alone, both = ({"path": path, **COMMITTED} for path in (str(tier), f"{tier},{stage.logs}"))
    stage.follow(options=alone, round_size=30_000)
    end = sealed[-1].next_base_offset
    assert end is not None and stage.offsets() == [(0, offset) for offset in range(end)]
    stage.follow(options=both)
    assert stage.offsets() == all_offsets(stage.ends.items())
    for _ in range(8):
        stage.numbered(400)
    assert len(tiered_directory(tier, stage.logs)) > len(sealed)
    drop_first(stage.logs, len(sealed) + 1)
    with pytest.raises(DataLost):
        stage.follow()  # The log directory alone does not have the offsets any more.
    stage.follow(options=both)
    assert stage.offsets() == all_offsets(stage.ends.items()) and stage.orphans() == []


def test_a_table_that_is_ahead_of_the_tier_waits_for_it(tmp_path: Path, stage: LakeStage) -> None:
    tier = tmp_path / "tier"
    tiered_directory(tier, stage.logs)
    stage.follow()
    with pytest.raises(DataLost, match="t-0"):
        stage.follow(options={"path": str(tier), **COMMITTED})
    assert stage.offsets() == all_offsets(stage.ends.items())


def test_without_the_log_directory_the_mode_has_to_be_given(tmp_path: Path, stage: LakeStage) -> None:
    tiered_directory(tmp_path / "tier", stage.logs)
    with pytest.raises(Refused, match="--mode append or --mode upsert"):
        stage.open(options={"path": str(tmp_path / "tier"), **COMMITTED}, mode="auto")


@pytest.mark.processes
def test_rows_come_from_a_bucket(stage: LakeStage, server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", CREDENTIALS["access_key_id"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CREDENTIALS["secret_access_key"])
    copied = copy_sealed(bucket_of(server, "lake"), stage.logs)
    options = {
        "path": f"s3://lake/pre/fix,{stage.logs}",
        "moldau.tiered.storage.endpoint": server.endpoint,
        "moldau.tiered.storage.region": "us-east-1",
        **COMMITTED,
    }
    drop_first(stage.logs, len(copied))
    stage.follow(options=options)
    assert stage.offsets() == all_offsets(stage.ends.items())
