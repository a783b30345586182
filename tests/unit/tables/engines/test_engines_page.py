"""The bounded part of the matrix of engines (docs/engines.md): our own ways to a topic, and what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engines.matrix import EQUAL, NONE, PAGE, cells_of
from tests.engines.paths import OURS, PATHS
from tests.engines.traps import RECORDS, VALUES


def test_no_way_of_ours_changes_or_refuses_a_value() -> None:
    found = cells_of(OURS)
    expected = {**dict.fromkeys(VALUES, NONE), **dict.fromkeys(RECORDS, EQUAL)}
    assert found == dict.fromkeys(OURS, expected)


def test_the_page_has_every_trap_and_path() -> None:
    text = PAGE.read_text("utf-8")
    assert [title for title in (*VALUES, *RECORDS) if title not in text] == []
    names = {name for paths in PATHS.values() for name in paths if not name.startswith("Spark")}
    assert [name for name in sorted(names) if f"| {name} |" not in text] == []
    ours = [line for line in text.splitlines() if line.startswith("| moldau.")]
    assert len(ours) > len(OURS) and not any(mark in line for line in ours for mark in "≠✗")


@pytest.mark.parametrize(
    "script", sorted({word for word in PAGE.read_text("utf-8").split("`") if word.endswith(".sh")})
)
def test_the_findings_of_the_page_are_there(script: str) -> None:
    assert (Path(PAGE).parents[1] / script).exists()
