"""`moldau follow-table`: its arguments, one run, a process that follows until SIGTERM, and its metrics meanwhile."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

import pytest

pytest.importorskip("pyiceberg", reason="the extra moldau[iceberg] is not installed")

from moldau.broker.cli import lake, main
from moldau.broker.cli.command import parser
from moldau.broker.cli.follow_table import choices_of
from moldau.broker.cli.table_follower import TableFollower
from moldau.lake.compaction import FILES_MIN
from moldau.protocol.record_builder import Record
from tests.support.lake_stage import START_MS, LakeStage, all_offsets


@pytest.fixture
def stage(tmp_path: Path) -> LakeStage:
    return LakeStage(tmp_path)


def words(stage: LakeStage, *more: str) -> list[str]:
    told = ["--path", str(stage.logs), "--topic", "t", "--warehouse", str(stage.warehouse), "--mode", "append"]
    return ["follow-table", *told, *more]


def test_the_arguments_are_the_choices(stage: LakeStage) -> None:
    more = ["--registry", "http://r", "--misfits", "skip", "--partition-by", "none", "--headers", "--round-size", "1"]
    arguments = parser(first_word="follow-table").parse_args(words(stage, *more, "--read-uncommitted", "--region", "x"))
    chosen = choices_of(arguments)
    assert chosen.forms.registry == "http://r" and chosen.unit is None and chosen.mode == "append"
    assert chosen.settings.compact_files_min is None and chosen.catalog_properties == {}
    assert chosen.settings.round_size == 1 << 20 and chosen.settings.misfits == "skip" and chosen.settings.has_headers
    assert chosen.options == {
        "path": str(stage.logs),
        "kafka.isolation.level": "read_uncommitted",
        "moldau.tiered.storage.region": "x",
    }


def test_a_catalog_is_given_by_its_properties() -> None:
    told = ["follow-table", "--path", "data", "--topic", "t", "--catalog", "prod", "--compact"]
    more = ["--catalog-property", "type=rest", "--catalog-property", "uri=http://h:8181/?a=b"]
    chosen = choices_of(parser(first_word="follow-table").parse_args([*told, *more]))
    assert chosen.catalog == "prod" and chosen.warehouse is None
    assert chosen.catalog_properties == {"type": "rest", "uri": "http://h:8181/?a=b"}
    assert chosen.settings.compact_files_min == FILES_MIN


def test_one_run_takes_what_is_there(stage: LakeStage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.numbered(30)
    assert main(words(stage, "--once")) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines() == [
        "default.t has all of t: 30 rows added",
        stage.table().metadata_location,
    ]
    assert shown.err.splitlines() == [
        "default.t follows t from partition 0 at 0",
        "commit 1: 30 rows; 0 offsets behind",
    ]
    assert main(words(stage, "--once", "--no-progress")) == 0
    assert capsys.readouterr().err == "" and stage.offsets() == all_offsets(stage.ends.items())


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (["--interval", "0"], "--interval and --round-size must be positive"),
        (["--metrics", "nowhere"], "--metrics nowhere: give HOST:PORT"),
        (["--catalog-property", "uri"], "--catalog-property uri: give NAME=VALUE"),
        (["--catalog-property", "uri=x"], "--catalog-property needs --catalog"),
        (["--table", "t"], "--table t: a table has a namespace and a name"),
        (["--mode", "auto"], "give --mode append or --mode upsert"),
        (["--topic", "gone"], "no partition of gone is in the places that are read"),
    ],
)
def test_what_cannot_be_followed_is_said(
    stage: LakeStage, capsys: pytest.CaptureFixture[str], more: list[str], problem: str
) -> None:
    stage.numbered(1)
    assert main(words(stage, "--once", *more)) == 1
    assert problem in capsys.readouterr().err


def test_a_catalog_that_is_not_configured_is_said(stage: LakeStage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.numbered(1)
    told = ["follow-table", "--path", str(stage.logs), "--topic", "t", "--mode", "append", "--catalog", "nowhere"]
    assert main(told) == 1
    assert "--catalog nowhere: " in capsys.readouterr().err


def test_a_record_that_does_not_fit_ends_the_command_with_its_place(
    stage: LakeStage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.append([Record(b"k", b"not framed", START_MS)])
    assert main(words(stage, "--once", "--registry", str(stage.schemas))) == 1
    assert "moldau: t-0, offset 0: the value is not framed" in capsys.readouterr().err


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_one_run_that_is_ended_by_a_signal_is_no_success(
    stage: LakeStage,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    status: int,
) -> None:
    stage.numbered(30)
    stop = TableFollower._stop
    monkeypatch.setattr(TableFollower, "_say_opened", lambda run, *_: stop(run, number))
    assert main(words(stage, "--once")) == status
    assert "has all of t" not in capsys.readouterr().out and stage.rows() == []


def test_without_the_extra_the_command_says_what_to_install(
    stage: LakeStage, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake, "NEEDED", ("pyiceberg", "gone"))
    assert main(words(stage)) == 1
    assert "gone is not installed: .venv/bin/pip install -e '.[iceberg]'" in capsys.readouterr().err


@pytest.mark.processes
def test_a_process_follows_until_sigterm_and_serves_its_lag(stage: LakeStage) -> None:
    stage.numbered(20)
    command = [sys.executable, "-m", "moldau", *words(stage, "--interval", "0.1", "--metrics", "127.0.0.1:0")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        said = [process.stderr.readline() for _ in range(3)]
        (place,) = (line.split()[-1] for line in said if line.startswith("metrics are at"))
        assert "commit 1: 20 rows; 0 offsets behind\n" in said
        stage.numbered(15)
        assert process.stderr.readline() == "commit 2: 15 rows; 0 offsets behind\n"
        until = time.monotonic() + 30
        wanted = 'moldau_table_rows_total{table="default.t",topic="t"} 35\n'
        while wanted not in (shown := urlopen(place).read().decode()):
            assert time.monotonic() < until, shown
        assert 'moldau_table_lag_offsets{table="default.t",topic="t",partition="0"} 0\n' in shown
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
    assert stage.offsets() == all_offsets(stage.ends.items()) and stage.orphans() == []
