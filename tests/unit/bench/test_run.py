"""A run of the bench: what a group that fails, hangs or is interrupted leaves, and what is measured again."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench import __main__ as bench_main
from bench.figures import Figure
from bench.groups import GROUPS, MeasurementGroup
from bench.progress import Progress, TimeLimitExceeded, time_limit
from bench.rows import ROWS
from bench.runs import ROOT, BenchRun

ASKED = ("start", "memory", "sender")
BY_NAME = {group.name: group for group in GROUPS}


class Stage:
    """The bench with groups that measure nothing."""

    def __init__(self, latest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.latest = latest
        self.asked: list[str] = []
        self.broken: dict[str, BaseException] = {}
        self._monkeypatch = monkeypatch
        monkeypatch.setattr(bench_main, "LATEST", latest)
        monkeypatch.setattr(bench_main, "is_compiled", lambda: True)
        monkeypatch.setattr(MeasurementGroup, "measure", lambda group, _, __: self._measure(group))

    def _measure(self, group: MeasurementGroup) -> list[Figure]:
        self.asked.append(group.name)
        if group.name in self.broken:
            raise self.broken[group.name]
        names = [row.name for row in ROWS if row.group == group.name]
        return [Figure(name, "s", {"moldau": [1.0], "apache": [2.0]}) for name in names]

    def run(self, *words: str) -> int:
        """The status with which the command ends."""
        self.asked.clear()
        self._monkeypatch.setattr(sys, "argv", ["bench", "--only", *ASKED, *words])
        self._monkeypatch.setattr(bench_main, "find_peer", lambda: None)
        return bench_main.main()


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(tmp_path / "latest.json", monkeypatch)


def test_a_group_that_fails_does_not_end_the_run(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.broken["memory"] = ValueError("a | b\n c")
    assert stage.run() == 1
    assert stage.asked == [*ASKED]
    run = BenchRun.read(stage.latest)
    assert run.groups["memory"].failure == "ValueError: a / b c"
    assert run.has_group("start") and run.has_group("sender") and not run.has_group("memory")
    assert "memory: resident, idle, one topic: failed: ValueError" in capsys.readouterr().out


def test_a_resumed_run_measures_what_failed_and_nothing_else(stage: Stage) -> None:
    stage.broken["memory"] = ValueError("once")
    stage.run()
    stage.broken.clear()
    assert stage.run("--resume") == 0
    assert stage.asked == ["memory"]


def test_a_run_that_is_interrupted_keeps_what_it_has(stage: Stage) -> None:
    stage.broken["memory"] = KeyboardInterrupt()
    assert stage.run() == 1
    assert [*BenchRun.read(stage.latest).groups] == ["start"]
    stage.broken.clear()
    assert stage.run("--resume") == 0
    assert stage.asked == ["memory", "sender"]


def test_a_group_without_one_of_its_rows_ends_the_command_with_an_error(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(MeasurementGroup, "measure", lambda *_: [])
    assert stage.run() == 1
    assert "memory: resident, idle, one topic: no figure" in capsys.readouterr().out


def test_what_is_left_follows_from_the_pace_so_far() -> None:
    groups = [BY_NAME["start"]._replace(expected_s=60), BY_NAME["memory"]._replace(expected_s=120)]
    progress = Progress(groups)
    assert progress.progress_line(groups[0]).startswith("[1 of 2, 3 minutes left] start: ")
    progress.add_group(groups[0], 120.0)
    assert progress.progress_line(groups[1]).startswith("[2 of 2, 4 minutes left] memory: ")


def test_a_group_that_hangs_is_interrupted() -> None:
    with pytest.raises(TimeLimitExceeded, match="more than 7 s"), time_limit(7):
        signal.raise_signal(signal.SIGALRM)
    assert signal.alarm(0) == 0


def test_a_tree_in_which_only_the_page_changed_is_of_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for words in (["init", "-q"], ["config", "user.email", "a@b.c"], ["config", "user.name", "a"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    root = ROOT
    changed = [path.relative_to(root) for path in bench_main.COMPUTED_FILES]
    for path in (*changed, Path("source.py")):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("before")
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    subprocess.run(["git", "commit", "-q", "-m", "all"], cwd=tmp_path, check=True)
    monkeypatch.setattr(bench_main, "ROOT", tmp_path)
    monkeypatch.setattr(bench_main, "COMPUTED_FILES", [tmp_path / path for path in changed])
    clean = bench_main.commit_name()
    for path in changed:
        (tmp_path / path).write_text("after")
    assert bench_main.commit_name() == clean
    (tmp_path / "source.py").write_text("after")
    assert bench_main.commit_name() == f"{clean}+"
