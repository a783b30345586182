"""The stories of the metadata quorum and of the controller."""

from __future__ import annotations

import pytest

from tests.support.controller_scribe import ControllerScribe
from tests.support.raft_scribe import RaftScribe
from tests.support.transcripts import check_transcript, transcripts_in


@pytest.mark.parametrize("name", transcripts_in("kraft/raft"))
def test_raft_story(name: str) -> None:
    check_transcript(name, RaftScribe().respond)


@pytest.mark.parametrize("name", transcripts_in("kraft/controller"))
def test_controller_story(name: str) -> None:
    check_transcript(name, ControllerScribe().respond)
