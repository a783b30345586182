"""A bounded part of `python -m tests.lake`: a writer is killed at some steps of a commit; each offset is there once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Final

import pytest

pytest.importorskip("pyiceberg", reason="the extra moldau[iceberg] is not installed")
pytest.importorskip("fastavro", reason="the extra moldau[schemas] is not installed")

from moldau.lake.round_rows import DEAD_LETTER
from tests.lake.campaign import KILLED, Story
from tests.lake.killed_writer import run

pytestmark = pytest.mark.processes
PARENT: Final = """
import os, signal
from threading import Event
from tests.lake.killed_writer import RUNS, child


def wait_for_ever(begun):
    begun.set()
    Event().wait()


if __name__ == "__main__":
    begun = RUNS.Event()
    child(wait_for_ever, begun).start()
    begun.wait()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    ("kind", "kills"),
    [
        ("append", [("table made", 1), ("data file written", 2), ("metadata written", 2), ("committed", 2)]),
        ("upsert", [("claimed", 1), ("manifests written", 2), ("metadata begun", 2)]),
        (DEAD_LETTER, [("metadata written", 1), ("committed", 3), ("manifest list begun", 4)]),
    ],
)
def test_a_killed_writer_leaves_a_table_that_the_next_run_makes_whole(
    tmp_path: Path, kind: str, kills: list[tuple[str, int]]
) -> None:
    story = Story(tmp_path / "story", kind, Random(7))
    for step, occurrence in kills:
        story.write()
        assert run(story.choices, step, occurrence) == KILLED, step
        assert run(story.choices) == 0
        story.check()


def test_a_child_ends_with_its_parent(tmp_path: Path) -> None:
    program = tmp_path / "parent.py"
    program.write_text(PARENT, "utf-8")
    reading, writing = os.pipe()
    paths = os.pathsep.join(sys.path)
    command, variables = [sys.executable, str(program)], {**os.environ, "PYTHONPATH": paths}
    with subprocess.Popen(command, pass_fds=[writing], stdout=writing, env=variables) as parent:
        os.close(writing)
        with open(reading, "rb") as output:
            assert output.read() == b"", "ends when the last process that has inherited the pipe has ended"
    assert parent.returncode == KILLED
