"""`moldau erase --tables`: tables are checked before anything is erased, and a failure afterwards is in the receipt."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyiceberg", reason="the extra moldau[iceberg] is not installed")

from moldau.broker.cli.daily.erasure.tables import FollowingTables
from moldau.broker.cli.invocation import CommandError
from tests.support.lake_stage import LakeStage

pytestmark = pytest.mark.slow

RUNS = [(0, [(2, 3)]), (0, [(7, 7)])]


class Told(SimpleNamespace):
    """A session without a client of a cluster."""

    def __init__(self, stage: LakeStage, tables: str) -> None:
        arguments = Namespace(tables=tables, warehouse=str(stage.warehouse), catalog=None, catalog_property=[])
        self.notes: list[str] = []
        super().__init__(
            arguments=arguments,
            client=SimpleNamespace(cluster_id=None),
            invocation=SimpleNamespace(require=lambda *_: None),
            now_ms=lambda: stage.now_ms,
        )

    def note(self, text: str, *_: str) -> None:
        self.notes.append(text)


@pytest.fixture
def stage(tmp_path: Path) -> LakeStage:
    stage = LakeStage(tmp_path)
    stage.numbered(10)
    stage.follow()
    return stage


def opened(stage: LakeStage, tables: str = "t", topic: str = "t") -> tuple[FollowingTables, Told]:
    told: Any = Told(stage, tables)
    return FollowingTables(told, topic), told


def test_the_receipt_has_the_rows_and_a_check_finds_none(stage: LakeStage) -> None:
    tables, told = opened(stage)
    assert [each["records_left"] for each in tables.checked(RUNS)] == [3]
    (stated,) = tables.erase(RUNS)
    assert (stated["state"], stated["rows"], stated["table"]) == ("erased", 3, "default.t")
    assert told.notes == [f"table default.t: 3 rows erased, {stated['snapshots_expired']} snapshots expired"]
    (row,) = opened(stage, "default.t")[0].checked(RUNS)
    assert (row["state"], row["records_left"]) == ("clean", 0)


def test_tables_that_do_not_follow_the_topic_are_refused_before(stage: LakeStage) -> None:
    with pytest.raises(CommandError, match="does not follow the topic other"):
        opened(stage, topic="other")
    with pytest.raises(CommandError, match=r"there is no table default\.missing"):
        opened(stage, "t,missing")


def test_a_failure_after_the_log_is_erased_is_in_the_receipt(stage: LakeStage, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError("the disk is full")

    tables, told = opened(stage)
    monkeypatch.setattr("moldau.lake.erasing.erase_rows", fails)
    (stated,) = tables.erase(RUNS)
    assert stated["state"] == "not erased" and "the disk is full" in stated["problem"]
    assert told.notes == [f"table default.t was not erased: {stated['problem']}"]
