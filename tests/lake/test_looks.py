"""A bounded part of `python -m tests.lake --looks 1000`: a live table is equal to a model at each look."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyiceberg", reason="the extra moldau[iceberg] is not installed")

from tests.lake.looks import FORMS, Looks

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("form", FORMS)
def test_each_look_has_what_was_written(tmp_path: Path, form: str) -> None:
    looks = Looks(tmp_path, form, seed=5)
    looks.look(20)
    assert looks.runs
