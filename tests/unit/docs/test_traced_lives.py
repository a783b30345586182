"""What `docs/architecture.md` tells of a life is part of what runs."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from docs.lives import LIVES, Called, Trace, told, traced
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


@pytest.fixture(scope="module")
def files() -> dict[str, set[str]]:
    """The files that each life runs."""
    return {heading: {each.path for each in called} for heading, called in traced().items()}


def missing(stations: list[Station], files: set[str]) -> list[str]:
    return [str(each.path) for each in stations if str(each.path) not in files and each.path not in IN_ANOTHER_PROCESS]


@pytest.mark.processes  # it runs nodes
@pytest.mark.parametrize("life", ARCHITECTURE)
def test_each_file_that_decides_runs(life: str, files: dict[str, set[str]]) -> None:
    assert missing(ARCHITECTURE[life], {path for name in TRACED[life] for path in files[name]}) == []


def test_a_file_that_does_not_run_is_found() -> None:
    assert missing([Station(Path("storage/log/log.py"), None)], {"storage/log/reading.py"}) == ["storage/log/log.py"]


def test_a_trace_holds_what_the_product_calls_and_nothing_else() -> None:
    trace = Trace()
    with trace:
        read_http_address("http://127.0.0.1:1")
        (ROOT / "README.md").read_text("utf-8")
    assert list(trace.called.values()) == [Called("broker/config/listeners.py", "read_http_address")]


def test_a_life_is_told_in_lines() -> None:
    text = told(LIVES[0], [Called("protocol/primitives.py", "uvarint"), Called("storage/log/log.py", "Log.sync")])
    head, first, second = text.splitlines()
    assert head.startswith("A produce (2 files): ") and first.startswith("  protocol/primitives.py  uvarint: ")
    assert second.startswith("  storage/log/log.py      Log.sync: One partition's log")
