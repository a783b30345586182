"""A figure whose modules have changed since it was measured is shown as old."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bench.age import OF_HOT_PATH, OF_SPARK, aged, measured_paths, origin
from bench.document import ROOT, held_table, kept_results, other_table, read_json
from bench.figures import Figure
from bench.groups import GROUPS

SCAN = "spark: 100 B values, none: full scan, against the JVM connector"
FETCH = "fetch 1 MiB from page cache, 4 connections: rate"
MEMORY = "memory: resident, idle, one topic"


def figure(name: str, commit: str, *, is_old: bool = False) -> Figure:
    return Figure(name, "MB", {"moldau": [1.0]}, made=f"2026-01-01 {commit} full on 2 x CPU", is_old=is_old)


def git(root: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false", *words]
    return subprocess.check_output(command, cwd=root, text=True).strip()


def commit_of(root: Path, path: str, text: str) -> str:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message", path)
    return git(root, "rev-parse", "--short", "HEAD")


def test_no_kept_figure_is_old_and_does_not_say_so() -> None:
    kept = kept_results()
    assert kept is not None
    _, figures = read_json(kept)
    hidden = [each.name for each, now in zip(figures, aged(figures, ROOT), strict=True) if now.is_old != each.is_old]
    assert hidden == [], "python -m bench --page && python docs/compute.py"


def test_a_figure_is_old_where_its_modules_have_changed(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    commit_of(tmp_path, "broker/network/connection.py", "first")
    measured = commit_of(tmp_path, "spark_jobs/scan.py", "first")
    planted = [figure(each, measured) for each in (MEMORY, FETCH, SCAN, "a figure without a row")]

    assert [each.is_old for each in aged(planted, tmp_path)] == [False] * 4
    commit_of(tmp_path, "docs/page.md", "first")
    assert [each.is_old for each in aged(planted, tmp_path)] == [False] * 4
    commit_of(tmp_path, "spark_jobs/scan.py", "second")
    assert [each.is_old for each in aged(planted, tmp_path)] == [False, False, True, False]
    commit_of(tmp_path, "broker/cli/serve.py", "first")
    assert [each.is_old for each in aged(planted, tmp_path)] == [True, False, True, True]
    (tmp_path / "broker/network/connection.py").write_text("not committed")
    assert [each.is_old for each in aged(planted, tmp_path)] == [True] * 4


@pytest.mark.parametrize("is_old", [True, False])
def test_without_the_commit_or_without_git_a_mark_stays(
    is_old: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "init", "--quiet")
    planted = [figure(MEMORY, "0123456789", is_old=is_old), figure(MEMORY, "", is_old=is_old)]
    assert aged(planted, tmp_path) == planted
    monkeypatch.setenv("PATH", "")
    assert aged(planted, tmp_path) == planted


def test_a_line_names_commit_and_processor_and_says_what_is_old() -> None:
    old = figure(MEMORY, "abcdef12", is_old=True)
    assert origin(old) == "abcdef12, 2 x CPU, **old**"
    assert any("abcdef12, 2 x CPU, **old** |" in line for line in held_table([old]))
    assert any("abcdef12, 2 x CPU |" in line for line in other_table([figure("another", "abcdef12")]))


def test_groups_and_modules_are_those_of_today() -> None:
    assert {*OF_HOT_PATH, *OF_SPARK} <= {group.name for group in GROUPS}
    for name in (MEMORY, FETCH, SCAN):
        assert all((ROOT / path).exists() for path in measured_paths(figure(name, "abcdef12")))
