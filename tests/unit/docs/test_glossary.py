"""The glossary names each term once, and places that exist."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "glossary.md"


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if row[0] != "term"]


def test_terms_are_explained_once() -> None:
    terms = [row[0] for row in rows()]
    assert len(terms) > 50
    assert len(set(terms)) == len(terms)
    assert all(len(row) == 4 and row[1].endswith(".") for row in rows())


def test_places_exist() -> None:
    for term, _, _, where in rows():
        for path in re.findall(r"`([\w/.]+)`", where):
            assert (PAGE.parents[1] / path).exists(), f"{term}: {path}"
