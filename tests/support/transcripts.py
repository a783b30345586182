"""A transcript: commands to a state machine and the effects they had, as a text that a reader can review.

    A new member joins and becomes the leader of generation 1.

    > join group=g member=m1 session_timeout_ms=10000
    reply m1 NONE generation=1

    > tick 10000

A line that begins with `> ` is a command; the lines below it, up to a blank line or the next command, are what it did.
Everything else is prose. A transcript lives at `tests/transcripts/<name>.txt`; `MOLDAU_REWRITE=1` writes into it what
the machine does now, prose and commands untouched, for a reader to judge in the diff.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

DIRECTORY = Path(__file__).resolve().parent.parent / "transcripts"
PROMPT = "> "
REWRITE = "MOLDAU_REWRITE"


@dataclass(frozen=True, slots=True)
class Command:
    """`> name argument option=value`: one command of a transcript."""

    text: str

    @property
    def name(self) -> str:
        return self.text.split()[0]

    @property
    def arguments(self) -> list[str]:
        """The words after the name that are no options."""
        return [word for word in self.text.split()[1:] if "=" not in word]

    @property
    def options(self) -> dict[str, str]:
        """The words of the form `key=value`."""
        pairs = (word.partition("=") for word in self.text.split()[1:] if "=" in word)
        return {key: value for key, _, value in pairs}

    def int(self, option: str, default: int | None = None) -> int:
        """An option as a number; one without a default must be there."""
        if option in self.options or default is None:
            return int(self.options[option])
        return default


Respond = Callable[[Command], Iterable[str]]
"""Executes one command and says its effects, one line each (lines may hold several, none may be blank)."""


def transcripts_in(directory: str) -> list[str]:
    """The names of all transcripts below a directory, for `pytest.mark.parametrize`."""
    found = sorted((DIRECTORY / directory).rglob("*.txt"))
    assert found, f"no transcripts in {DIRECTORY / directory}"
    return [str(path.relative_to(DIRECTORY).with_suffix("")) for path in found]


def check_transcript(name: str, respond: Respond) -> None:
    """Run the commands of a transcript and compare their effects with the text; rewrite the text if asked to."""
    path = DIRECTORY / f"{name}.txt"
    written = path.read_text()
    happened = replay(written, respond)
    if os.environ.get(REWRITE) == "1":
        path.write_text(happened)
        return
    assert happened == written, f"{path} tells another story; {REWRITE}=1 rewrites it"


def replay(text: str, respond: Respond) -> str:
    """The transcript with the effects that its commands have now."""
    lines: list[str] = []
    in_effects = False
    for line in text.splitlines():
        if line.startswith(PROMPT):
            lines.append(line)
            lines.extend(effects_of(Command(line.removeprefix(PROMPT).strip()), respond))
            in_effects = True
        elif not line.strip():
            lines.append("")
            in_effects = False
        elif not in_effects:
            lines.append(line)
    return "\n".join(lines) + "\n"


def effects_of(command: Command, respond: Respond) -> list[str]:
    effects = [line.rstrip() for effect in respond(command) for line in effect.splitlines()]
    assert all(effects), f"a blank line ends the effects of a command: {command.text}"
    assert not any(line.startswith(PROMPT) for line in effects), f"an effect looks like a command: {command.text}"
    return effects
