"""A bounded part of `python -m tests.lake`: a writer is killed at some steps of a commit; each offset is there once."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

pytest.importorskip("pyiceberg", reason="the extra moldau[iceberg] is not installed")
pytest.importorskip("fastavro", reason="the extra moldau[schemas] is not installed")

from moldau.lake.round_rows import DEAD_LETTER
from tests.lake.campaign import KILLED, Story
from tests.lake.killed_writer import run

pytestmark = pytest.mark.processes


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
