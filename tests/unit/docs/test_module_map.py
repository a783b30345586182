"""Each module of the product is held by something, and the command that says by what tells the truth."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.module_map import Held, rows, told

HELD_BY_NOTHING = {
    "tables/decoding/record_fields.py",
    "testing/reaper.py",
}
"""They run behind others, which no import at run time says. A new module is not added here: it gets a test."""


@pytest.fixture(scope="module")
def held() -> dict[str, Held]:
    return {str(each.path): each for each in rows()}


def test_no_further_module_is_held_by_nothing(held: dict[str, Held]) -> None:
    assert {path for path, each in held.items() if not each.is_held} == HELD_BY_NOTHING


def test_what_holds_a_module_is_told(held: dict[str, Held]) -> None:
    log = held["storage/log/log.py"]
    assert log.unit_tests == ["its own"] and {"cluster", "replicas"} <= set(log.suites)
    assert held["broker/share_partitions/runner.py"].bugs
    assert "raft" in held["kraft/raft/raft.py"].transcripts
    assert told(log).splitlines()[1:3] == ["    tests         its own", f"    simulation    {', '.join(log.suites)}"]
    nothing = Held(Path("a/b.py"), "It is new.", [], [], [], [])
    assert told(nothing) == "a/b.py: It is new.\n    held by nothing"
