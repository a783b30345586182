"""What `docs/architecture.md` tells of a life is part of what runs: `docs/lives.md` is a trace, not a choice."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from docs.lives import LIVES, Called, Trace, lives_page
from moldau.broker.config.listeners import read_http_address
from tests.unit.tidy.test_lives import Station, lives

ROOT: Final = Path(__file__).parents[3]
ARCHITECTURE: Final = lives((ROOT / "docs" / "architecture.md").read_text("utf-8"))
TRACED: Final = {
    "A long poll": ("A long poll",),
    "A produce": ("A produce", "A replicated produce"),
    "A join": ("A join",),
    "An election": ("An election",),
    "A replicated record": ("A replicated produce",),
    "A transaction's end": ("A commit of a transaction",),
    "A cleaning of a compacted log": ("A compaction",),
}
"""The traced lives of each table of the architecture page."""
IN_ANOTHER_PROCESS: Final = {Path("broker/runtime/worker.py")}
"""The simulation runs the work of the log cleaner without a process."""


def traced() -> dict[str, list[str]]:
    """The files by life, as the page has them; another test compares the page with a new trace."""
    text = (ROOT / "docs" / "lives.md").read_text("utf-8")
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return {
        heading: re.findall(r"^\| `([\w/]+\.py)`", body, re.MULTILINE)
        for heading, body in zip(parts[1::2], parts[2::2], strict=True)
    }


def missing(stations: list[Station], files: set[str]) -> list[str]:
    return [str(each.path) for each in stations if str(each.path) not in files and each.path not in IN_ANOTHER_PROCESS]


@pytest.mark.parametrize("life", ARCHITECTURE)
def test_each_file_that_decides_runs(life: str) -> None:
    found = traced()
    assert missing(ARCHITECTURE[life], {path for name in TRACED[life] for path in found[name]}) == []


def test_a_file_that_does_not_run_is_found() -> None:
    assert missing([Station(Path("storage/log/log.py"), None)], {"storage/log/reading.py"}) == ["storage/log/log.py"]


def test_the_table_on_top_counts_the_files() -> None:
    text = (ROOT / "docs" / "lives.md").read_text("utf-8")
    counted = {
        name: int(count) for name, count in re.findall(r"^\| \[([^]]+)\]\(#[\w-]+\) \| (\d+) \|$", text, re.MULTILINE)
    }
    found = traced()
    assert counted == {heading: len(set(files)) for heading, files in found.items()}
    assert list(counted) == [life.heading for life in LIVES]


def test_a_trace_holds_what_the_product_calls_and_nothing_else() -> None:
    trace = Trace()
    with trace:
        read_http_address("http://127.0.0.1:1")
        (ROOT / "README.md").read_text("utf-8")
    assert list(trace.called.values()) == [Called("broker/config/listeners.py", "read_http_address")]


def test_a_page_is_made_of_a_trace() -> None:
    page = lives_page({life.heading: [Called("protocol/primitives.py", "uvarint")] for life in LIVES})
    assert page.count("| `protocol/primitives.py` | `uvarint` | ") == len(LIVES)
