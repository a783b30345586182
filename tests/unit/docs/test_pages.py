"""The computed pages say what the code says."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.compute import PAGES

SLOW = pytest.param("lives.md", marks=pytest.mark.processes)  # it runs nodes


@pytest.mark.parametrize("name", [SLOW if name == "lives.md" else name for name in PAGES])
def test_a_computed_page_is_up_to_date(name: str) -> None:
    assert (Path("docs") / name).read_text() == PAGES[name](), "run python docs/compute.py"
