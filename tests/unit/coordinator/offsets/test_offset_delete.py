"""A deletion that finds nothing, for one before it is not committed yet, is not told before that is."""

from __future__ import annotations

import pytest

from tests.support.group_scribe import GroupScribe
from tests.support.transcripts import Command


def told(scribe: GroupScribe, text: str) -> list[str]:
    return [line for line in scribe.respond(Command(text)) if line.startswith("tell")]


@pytest.mark.parametrize("deletion", ["delete-offsets g topics=t-0", "delete g"])
def test_a_deletion_that_comes_twice_is_told_when_it_is_committed(deletion: str) -> None:
    scribe = GroupScribe()
    told(scribe, "commit g t-0=5 as=commit")
    told(scribe, "hold")
    assert told(scribe, f"{deletion} as=first") == []
    assert told(scribe, f"{deletion} as=again") == []
    first, again = told(scribe, "release")
    assert first.startswith("tell first")
    assert again.startswith("tell again")
