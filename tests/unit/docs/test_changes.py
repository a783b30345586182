"""A change is told in one or two lines."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
CHARACTERS_MAX: Final = 300
LINES_MAX: Final = 2


def test_a_fragment_is_one_bullet() -> None:
    fragments = [path for path in (ROOT / "docs/changes").glob("*.md") if path.name != "README.md"]
    for path in fragments:
        text = path.read_text().rstrip("\n")
        assert text.startswith("- ") and text.count("\n- ") == 0, path.name
        assert text.count("\n") < LINES_MAX and len(text) <= CHARACTERS_MAX, path.name


def test_an_entry_of_the_changelog_is_one_or_two_lines() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    entries = [line for line in lines if line.startswith("- ")]
    assert entries and all(len(entry) <= CHARACTERS_MAX for entry in entries)
    assert [line for line in lines if line.startswith("  ")] == []
