"""How far a run is: the place of a group, how long it is expected to take, and what is left after it; and the limit of
time after which a group has failed.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from bench.groups import Group


class TookTooLong(Exception):
    """A group passed its limit of time."""


class Progress:
    """Of the groups of one run in the full form."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self._groups = groups
        self._taken_s = 0.0
        self._expected_s = 0
        """What was expected of the groups that are over."""

    def line(self, group: Group) -> str:
        """What is printed before a group."""
        place = self._groups.index(group)
        left_s = sum(each.expected_s for each in self._groups[place:]) * self._pace
        head = f"[{place + 1} of {len(self._groups)}, {left_s / 60:.0f} minutes left]"
        return f"{head} {group.name}: {group.about}; about {group.expected_s * self._pace:.0f} s"

    def add(self, group: Group, seconds: float) -> None:
        """The group is over; one that failed says nothing about the machine and is not added."""
        self._taken_s += seconds
        self._expected_s += group.expected_s

    @property
    def _pace(self) -> float:
        """Seconds that one expected second took so far: another machine, or a short form, has another pace."""
        return self._taken_s / self._expected_s if self._expected_s else 1.0


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raise `TookTooLong` inside `with` after so many seconds. The main thread alone can be interrupted so."""

    def interrupt(_: int, __: FrameType | None) -> None:
        raise TookTooLong(f"it took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
