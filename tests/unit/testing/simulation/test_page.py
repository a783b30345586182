"""The program of docs/faults.md finds its bug."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[4] / "docs/faults.md"


@pytest.mark.slow
def test_the_example_finds_its_bug() -> None:
    (program,) = re.findall(r"\n\n((?:    [^\n]*\n|\n)+?)\n`explore` simulates", PAGE.read_text("utf-8"))
    assert "seconds=60" in program
    program = program.replace("seconds=60", "seconds=3600")  # A machine may have other work.
    with pytest.raises(AssertionError, match="were never processed"):
        exec(compile(textwrap.dedent(program), str(PAGE), "exec"), {})
