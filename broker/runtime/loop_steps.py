"""Finds the steps that held the event loop longest, so that the log can name the cause of a stall.

A step is what the loop runs before it looks for received bytes again: a callback, a timer, a step of a task, or a
request. `TimedLoop` (`broker/node/main.py`) measures callbacks, timers and tasks, and connections measure requests by
the readings of their clock.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Final

from moldau.protocol.late_tuple import NamedTuple

log = logging.getLogger("moldau.slow")

LOGGED_NS_MIN: Final = 50_000_000
"""The minimum duration (ns) of a step that is logged: clients notice little of a shorter one."""
NAME_LENGTH_MAX: Final = 200


class LongestStep(NamedTuple):
    """The duration (ns) and the name of the step that held the event loop longest in a period."""

    held_ns: int
    name: str


NO_STEP: Final = LongestStep(0, "")


class LoopSteps:
    """Remembers the longest step of the current period, which begins with `begin_period`."""

    __slots__ = ("_name", "last", "longest_ns")

    def __init__(self) -> None:
        self.longest_ns = 0
        self.last = NO_STEP
        """The longest step of the period before the last `begin_period`."""
        self._name: Callable[[], str] | None = None

    def note_step(self, held_ns: int, name: Callable[[], str]) -> None:
        """Remember a step that has ended if it held the loop longer than `longest_ns`. `name` is called only when the
        name is used.
        """
        if held_ns > self.longest_ns:
            self.longest_ns = held_ns
            self._name = name

    @property
    def longest(self) -> LongestStep:
        return NO_STEP if self._name is None else LongestStep(self.longest_ns, self._name()[:NAME_LENGTH_MAX])

    def begin_period(self) -> None:
        """Begin a new period. The longest step of the period that ends is kept in `last`."""
        self.last = self.longest
        self.longest_ns, self._name = 0, None

    def end_start(self) -> None:
        """Log the longest step of the node's start, and forget it: no client has waited for the start."""
        held_ns, name = self.longest
        log.debug("the start held the event loop for %.0f ms at most, in %s", held_ns / 1e6, name)
        self.begin_period()
        self.last = NO_STEP

    def log_longest(self) -> None:
        """Begin a new period, and log the longest step of the period that ended if it was long."""
        self.begin_period()
        held_ns, name = self.last
        if held_ns >= LOGGED_NS_MIN:
            log.warning("longest_step held_ms=%.1f step=%s", held_ns / 1e6, json.dumps(name))


def callback_name(callback: object) -> str:
    """The name for the log of a callback, a task or a bound method."""
    while hasattr(callback, "func"):
        callback = callback.func  # A functools.partial.
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return f"task {owner.get_name()}"
    name = getattr(callback, "__qualname__", None) or getattr(callback, "__name__", None) or type(callback).__name__
    return f"{getattr(callback, '__module__', None) or type(owner).__module__}.{name}"
