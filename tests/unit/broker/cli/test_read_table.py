"""`moldau read --table-of`: the rows of a table with those behind it, of a query of them, and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("pyiceberg", reason="the extra moldau[iceberg] is not installed")

from moldau.broker.cli.command import main
from tests.support.lake_stage import LakeStage

pytestmark = pytest.mark.slow


@pytest.fixture
def stage(tmp_path: Path) -> LakeStage:
    stage = LakeStage(tmp_path)
    stage.numbered(20)
    stage.follow()
    stage.numbered(5)
    return stage


def read(stage: LakeStage, *arguments: str) -> int:
    where = ["--table-of", "t", "--warehouse", str(stage.warehouse), "--path", str(stage.logs)]
    return main(["read", *where, "--format", "jsonl", *arguments])


def test_the_rows_of_a_table_and_those_behind_it(stage: LakeStage, capfd: pytest.CaptureFixture[str]) -> None:
    assert read(stage, "--columns", "offset") == 0
    assert len(capfd.readouterr().out.splitlines()) == 20
    assert read(stage, "--live", "--columns", "offset") == 0
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [row["offset"] for row in rows] == list(range(25))
    pytest.importorskip("duckdb", reason="the extra moldau[sql] is not installed")
    assert read(stage, "--live", "--sql", 'select max("offset") as last, count(*) as rows from t') == 0
    assert json.loads(capfd.readouterr().out) == {"last": 24, "rows": 25}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--table-of", "t"], "--table-of needs --warehouse or --catalog"),
        (["--topic", "t", "--live"], "--live, --warehouse and --catalog are of --table-of"),
        (["--topic", "t", "--misfits", "skip"], "--misfits skip is of --table-of"),
        (["--table-of", "t", "--warehouse", "w", "--start", "3"], "--start is not of --table-of"),
        (["--table-of", "t", "--warehouse", "w", "--table", "latest"], "are not of --table-of"),
        (["--table-of", "t", "--warehouse", "w", "--sql", "select 1", "--columns", "offset"], "a query says this"),
        (["--table-of", "t", "--warehouse", "w", "--misfits", "null"], "--table-of takes suspend and skip"),
        (["--table-of", "t", "--warehouse", "nowhere"], "nowhere: there is no catalog.db"),
        (["--table-of", "t", "--catalog", "c", "--catalog-property", "uri"], "--catalog-property uri: give NAME=VALUE"),
    ],
)
def test_what_does_not_go_together_is_refused(
    arguments: list[str], text: str, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["read", *arguments]) == 1
    assert text in capfd.readouterr().err


def test_a_table_that_is_not_there_is_named(stage: LakeStage, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["read", "--table-of", "gone", "--warehouse", str(stage.warehouse)]) == 1
    assert "there is no table default.gone" in capfd.readouterr().err
