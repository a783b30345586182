"""What ends with the test's process. The command for many runs: `python -m tests.leftovers --runs 200`."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from moldau.testing.lifeline import REAPER
from tests.leftovers.__main__ import ENDINGS, Ending, leftovers_of

SLEEPER = (sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)")


@pytest.mark.processes
@pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: ending.name)
def test_a_run_leaves_no_process_and_no_directory(ending: Ending) -> None:
    found = leftovers_of(ending, random.Random(7))
    assert found.processes == [] and found.files == []


def reap(*lines: str) -> None:
    told = "".join(f"{line}\n" for line in lines).encode()
    subprocess.run([sys.executable, "-I", "-S", str(REAPER)], input=told, check=True)


@pytest.mark.processes
def test_the_reaper_kills_and_removes_what_it_was_told(tmp_path: Path) -> None:
    removed, kept = tmp_path / "to remove", tmp_path / "kept"
    for path in (removed, kept):
        (path / "deeper").mkdir(parents=True)
    with subprocess.Popen(SLEEPER) as left, subprocess.Popen(SLEEPER) as ended:
        reap(
            *(f"node {each.pid}" for each in (left, ended)),
            f"ended {ended.pid}",
            *(f"directory {path}" for path in (removed, kept)),
            f"kept {kept}",
        )
        assert left.wait(10) == -9 and ended.poll() is None
        ended.kill()
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


@pytest.mark.processes
def test_the_reaper_passes_over_what_is_gone(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", ""]) as gone:
        gone.wait()
    (tmp_path / "removed").mkdir()
    reap(
        f"node {gone.pid}",
        f"directory {tmp_path / 'absent'}",
        f"ended {gone.pid}",
        f"directory {tmp_path / 'removed'}",
    )
    assert list(tmp_path.iterdir()) == [], "it goes on with the next line"
