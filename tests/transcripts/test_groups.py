"""The stories of classic groups."""

from __future__ import annotations

import pytest

from tests.support.group_scribe import GroupScribe
from tests.support.transcripts import check_transcript, transcripts_in


@pytest.mark.parametrize("name", transcripts_in("groups"))
def test_group_story(name: str) -> None:
    check_transcript(name, GroupScribe().respond)
