"""The steps of the event loop: which of them held the loop longest, so that the log can name the cause of a stall.

A step is what the loop runs before it looks for received bytes again: a callback, a timer, a step of a task, or a
request. `TimedLoop` (`broker/node/main.py`) measures the first three, and connections measure requests by the readings
of their clock.
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
"""The shortest step (ns) that is logged: clients notice little of a shorter one."""
NAME_LENGTH_MAX: Final = 200


class LongestStep(NamedTuple):
    """The step that held the loop longest in a period."""

    held_ns: int
    name: str


NO_STEP: Final = LongestStep(0, "")


class LoopSteps:
    """The longest step since the last `restart`."""

    __slots__ = ("_name", "last", "longest_ns")

    def __init__(self) -> None:
        self.longest_ns = 0
        self.last = NO_STEP
        """The longest step before the last `restart`."""
        self._name: Callable[[], str] | None = None

    def note(self, held_ns: int, name: Callable[[], str]) -> None:
        """Note a step that is over, if it held the loop longer than `longest_ns`. `name` is called only when the name
        is used.
        """
        if held_ns > self.longest_ns:
            self.longest_ns = held_ns
            self._name = name

    @property
    def longest(self) -> LongestStep:
        return NO_STEP if self._name is None else LongestStep(self.longest_ns, self._name()[:NAME_LENGTH_MAX])

    def restart(self) -> None:
        """Begin a new period, and keep the longest step of the last one."""
        self.last = self.longest
        self.longest_ns, self._name = 0, None

    def end_start(self) -> None:
        """Log the longest step so far, and forget it, because the start of the node is over: no client has waited for
        it.
        """
        held_ns, name = self.longest
        log.debug("the start held the event loop for %.0f ms at most, in %s", held_ns / 1e6, name)
        self.restart()
        self.last = NO_STEP

    def log_longest(self) -> None:
        """Begin a new period, and log the longest step of the last one if it was long."""
        self.restart()
        held_ns, name = self.last
        if held_ns >= LOGGED_NS_MIN:
            log.warning("longest_step held_ms=%.1f step=%s", held_ns / 1e6, json.dumps(name))


def callback_name(callback: object) -> str:
    """The name of a callback for the log: that of its task or of its function."""
    while hasattr(callback, "func"):
        callback = callback.func  # A functools.partial.
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return f"task {owner.get_name()}"
    name = getattr(callback, "__qualname__", None) or getattr(callback, "__name__", None) or type(callback).__name__
    return f"{getattr(callback, '__module__', None) or type(owner).__module__}.{name}"
