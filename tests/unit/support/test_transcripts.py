"""The transcript runner itself: what it compares, what it rewrites, what it leaves alone."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.support import transcripts
from tests.support.transcripts import Command, check_transcript, replay, transcripts_in

STORY = """\
A counter counts.

> add 2 3
5

> nothing
> add 1
1

And stops.
"""


def adder(command: Command) -> Iterable[str]:
    if command.name == "add":
        yield str(sum(int(word) for word in command.arguments))


def test_a_true_story_is_replayed_to_the_letter() -> None:
    assert replay(STORY, adder) == STORY


def test_effects_are_replaced_and_prose_is_kept() -> None:
    assert replay(STORY.replace("5\n", "6\nand more\n"), adder) == STORY


def test_options_and_arguments_are_told_apart() -> None:
    command = Command("join m1 timeout_ms=10 leader")
    assert (command.name, command.arguments, command.options) == ("join", ["m1", "leader"], {"timeout_ms": "10"})
    assert (command.int("timeout_ms"), command.int("epoch", 3)) == (10, 3)
    with pytest.raises(KeyError):
        command.int("epoch")


def test_a_file_that_tells_another_story_fails_until_it_is_rewritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcripts, "DIRECTORY", tmp_path)
    monkeypatch.delenv(transcripts.REWRITE, raising=False)
    path = tmp_path / "adder" / "sums.txt"
    path.parent.mkdir()
    path.write_text(STORY.replace("5\n", "6\n"))
    assert transcripts_in("adder") == ["adder/sums"]
    with pytest.raises(AssertionError, match="another story"):
        check_transcript("adder/sums", adder)
    monkeypatch.setenv(transcripts.REWRITE, "1")
    check_transcript("adder/sums", adder)
    assert path.read_text() == STORY


@pytest.mark.parametrize("effect", ["one\n\ntwo", "> add 1"])
def test_effects_that_could_not_be_read_back_are_refused(effect: str) -> None:
    with pytest.raises(AssertionError):
        replay(STORY, lambda command: [effect])
