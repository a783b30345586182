"""A change is told in one or two lines."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from docs.join_changes import join_changes

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


def test_a_release_joins_the_fragments(tmp_path: Path) -> None:
    folder = tmp_path / "docs" / "changes"
    folder.mkdir(parents=True)
    page = tmp_path / "CHANGELOG.md"
    page.write_text("# Changes\n\n## 0.1.0\n\n- Old.\n")
    (folder / "README.md").write_text("# How\n")
    with pytest.raises(ValueError, match="no change"):
        join_changes(tmp_path, "0.2.0")
    (folder / "b.md").write_text("- Second,\n  in two lines.\n")
    (folder / "a.md").write_text("- First.\n")
    with pytest.raises(ValueError, match=r"has the release 0\.1\.0"):
        join_changes(tmp_path, "0.1.0")
    assert join_changes(tmp_path, "0.2.0") == 2
    joined = "# Changes\n\n## 0.2.0\n\n- First.\n- Second, in two lines.\n\n## 0.1.0\n\n- Old.\n"
    assert page.read_text() == joined
    assert [path.name for path in folder.iterdir()] == ["README.md"]
