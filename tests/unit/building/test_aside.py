"""Compiling aside: what a start finds ready, what it refuses, and what it says."""

from __future__ import annotations

import fcntl
import os
import subprocess
import tomllib
from pathlib import Path

import pytest

from building import aside
from building.aside import LOAD_TEST, BackgroundBuild
from building.extensions import EXTENSIONS, LIBRARY, compiled_files, is_current
from building.hot_path import COMPILED_SOURCES, HEADERS, NEEDED_BY_TABLES, ROOT, digest_of
from building.mypyc_build import EXTENSION_SUFFIX, CannotCompile, run


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in (*COMPILED_SOURCES, *HEADERS):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
        os.utime(tmp_path / name, (1, 1))
    (tmp_path / ".compiled").mkdir()
    return tmp_path


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The processes that would have been started."""
    commands: list[object] = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: commands.append(command))
    monkeypatch.setattr(aside, "refuse_without_c_compiler", lambda: None)
    return commands


def make_ready(checkout: Path) -> None:
    ready = checkout / ".compiled/ready"
    for name in (*EXTENSIONS, LIBRARY):
        (ready / name).parent.mkdir(parents=True, exist_ok=True)
        (ready / name).write_text("")
    (ready / "digest").write_text(f"{EXTENSION_SUFFIX}\n{digest_of(checkout)}\n")


def test_the_first_start_is_plain_python_and_has_the_next_one_compiled(checkout: Path, started: list[object]) -> None:
    said = BackgroundBuild(checkout).begin()
    assert "plain Python" in said and "background" in said and "\n" not in said
    assert len(started) == 1 and list(compiled_files(checkout)) == []


def test_a_later_start_takes_the_finished_set(checkout: Path, started: list[object]) -> None:
    make_ready(checkout)
    assert BackgroundBuild(checkout).begin() == "the hot path is compiled"
    assert is_current(checkout) and started == [] and not (checkout / ".compiled/ready").exists()
    assert BackgroundBuild(checkout).begin() == ""


def test_before_the_next_start_one_line_says_what_it_finds(checkout: Path, started: list[object]) -> None:
    assert BackgroundBuild(checkout).outlook() == ""
    with (checkout / ".compiled/lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "in the background" in BackgroundBuild(checkout).outlook()
    make_ready(checkout)
    assert BackgroundBuild(checkout).outlook() == "compiled modules are ready: the next start takes them"
    (checkout / COMPILED_SOURCES[0]).write_text("other")
    assert BackgroundBuild(checkout).outlook() == ""
    make_ready(checkout)
    BackgroundBuild(checkout).begin()
    assert BackgroundBuild(checkout).outlook() == ""


def test_a_finished_set_of_other_sources_is_thrown_away(checkout: Path, started: list[object]) -> None:
    """The source changed while it was being compiled: the set would look newer than the change."""
    make_ready(checkout)
    (checkout / COMPILED_SOURCES[0]).write_text("changed = True\n")
    assert "background" in BackgroundBuild(checkout).begin()
    assert len(started) == 1 and list(compiled_files(checkout)) == []


def test_a_stale_set_is_removed_before_the_start(checkout: Path, started: list[object]) -> None:
    make_ready(checkout)
    BackgroundBuild(checkout).begin()
    (checkout / COMPILED_SOURCES[0]).write_text("changed = True\n")
    os.utime(checkout / EXTENSIONS[0], (1, 1))
    BackgroundBuild(checkout).begin()
    assert list(compiled_files(checkout)) == [] and len(started) == 1


def test_a_second_start_does_not_compile_again(checkout: Path, started: list[object]) -> None:
    with (checkout / ".compiled/lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "background" in BackgroundBuild(checkout).begin()
    assert started == []


def test_without_a_compiler_the_start_says_so_in_one_line(
    checkout: Path, started: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise CannotCompile("this machine has no C compiler (cc)")

    monkeypatch.setattr(aside, "refuse_without_c_compiler", refuse)
    assert BackgroundBuild(checkout).begin() == "the hot path runs as plain Python: this machine has no C compiler (cc)"
    assert started == []


def test_sources_that_could_not_be_compiled_are_not_tried_at_every_start(
    checkout: Path, started: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise CannotCompile("mypyc or the C compiler failed", "error: unexpected")

    monkeypatch.setattr(aside, "copy_tree", lambda *_: None)
    monkeypatch.setattr(aside, "digest_of", lambda _: "d")
    monkeypatch.setattr(aside, "compile_tree", fail)
    monkeypatch.setattr(os, "nice", lambda _: 0)
    assert BackgroundBuild(checkout).compile_aside().endswith("failed (log: .compiled/log)")
    assert "error: unexpected" in (checkout / ".compiled/log").read_text()
    said = BackgroundBuild(checkout).begin()
    assert started == [] and "failed" in said and "make compiled" in said and "\n" not in said
    monkeypatch.setattr(aside, "digest_of", lambda _: "other sources")
    BackgroundBuild(checkout).begin()
    assert len(started) == 1


def test_an_installation_cut_short_is_finished_by_the_next_start(checkout: Path, started: list[object]) -> None:
    make_ready(checkout)
    (checkout / EXTENSIONS[0]).write_text("")
    BackgroundBuild(checkout).begin()
    assert is_current(checkout) and started == []


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        ("record.c:1:10: fatal error: Python.h: No such file or directory\nerror: command 'gcc' failed", "Python.h"),
        ("Traceback:\n  File x\nModuleNotFoundError: No module named 'numpy'", "No module named 'numpy'"),
        ("Killed", "Killed"),
        ("", "no output"),
    ],
)
def test_a_failed_compile_says_its_reason_in_one_line_and_the_place_of_its_log(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, printed: str, reason: str
) -> None:
    def fail(*_: object) -> None:
        run(["-c", f"print({printed!r}); raise SystemExit(1)"], checkout, "mypyc or the C compiler failed")

    monkeypatch.setattr(aside, "copy_tree", lambda *_: None)
    monkeypatch.setattr(aside, "digest_of", lambda _: "d")
    monkeypatch.setattr(aside, "compile_tree", fail)
    said = BackgroundBuild(checkout).compile_now()
    assert "\n" not in said and f"{reason}" in said
    assert "(log: .compiled/log)" in said or not printed
    assert not printed or printed in (checkout / ".compiled/log").read_text()


def test_extension_modules_for_tables_load_without_the_packages_of_the_extra(tmp_path: Path) -> None:
    """A module of the node that needs an absent package fails, and so does one for tables that needs another one."""
    package = tmp_path / "moldau/protocol"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").write_text("")
    (package / "record_batch.py").write_text("def walk_records(*_):\n    return (0, 0, 0)\n")
    (package / "rows.py").write_text("import absent_package\n")
    (package / "other.py").write_text("import json.absent\n")
    program = LOAD_TEST.replace(
        'assert not find_spec(name).origin.endswith(".py"), name', ""
    )  # The modules are sources here.
    rows, other = "moldau/protocol/rows.py", "moldau/protocol/other.py"
    assert program != LOAD_TEST
    run(["-c", program, "absent_package", rows, rows], tmp_path, "failed")
    for words in (("absent_package", other, rows), ("absent_package", other, other), ("json", rows, rows)):
        with pytest.raises(CannotCompile, match="ModuleNotFoundError"):
            run(["-c", program, *words], tmp_path, "failed")


def test_the_packages_that_tables_need_are_those_of_the_extra_arrow() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {each.partition(">")[0] for each in extras["arrow"]} == set(NEEDED_BY_TABLES)
