"""The progress of a run: the position of a group, its expected duration, the remaining time, and the time limit of a
group.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from bench.groups import MeasurementGroup


class TimeLimitExceeded(Exception):
    """Raised if a group exceeds its time limit."""


class Progress:
    """The progress over the groups of one run."""

    def __init__(self, groups: Sequence[MeasurementGroup]) -> None:
        self._groups = groups
        self._taken_s = 0.0
        self._expected_s = 0
        """The expected duration (s) of the groups that have ended."""

    def progress_line(self, group: MeasurementGroup) -> str:
        """The line that is printed before a group."""
        place = self._groups.index(group)
        left_s = sum(each.expected_s for each in self._groups[place:]) * self._pace
        head = f"[{place + 1} of {len(self._groups)}, {left_s / 60:.0f} minutes left]"
        return f"{head} {group.name}: {group.about}; about {group.expected_s * self._pace:.0f} s"

    def add_group(self, group: MeasurementGroup, seconds: float) -> None:
        """Note that a group has ended. A failed group is not added, because its duration says nothing about the
        machine.
        """
        self._taken_s += seconds
        self._expected_s += group.expected_s

    @property
    def _pace(self) -> float:
        """The actual seconds for each expected second so far. Another machine or a short form has another pace."""
        return self._taken_s / self._expected_s if self._expected_s else 1.0


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """A context that raises `TimeLimitExceeded` in its block after some seconds. It works in the main thread only."""

    def interrupt(_: int, __: FrameType | None) -> None:
        raise TimeLimitExceeded(f"it took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
