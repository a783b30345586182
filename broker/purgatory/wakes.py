"""Parked fetches for which something has happened: each looks once, when what woke it is done.

A produce of ten partitions wakes a fetch ten times. A connection gathers wakes while it handles what arrived, and lets
them go when its own replies are on their way; whatever else wakes a fetch has it look in the loop's next turn.
A look that fails is a bug of ours, and takes no other with it.
"""

from __future__ import annotations

import asyncio
from typing import Protocol


class Sleeper(Protocol):
    """Who waits, and can look whether it still has to."""

    def look(self) -> None:
        """Once for all that happened."""


class Wakes:
    """Of one event loop."""

    __slots__ = ("_gathering", "_is_scheduled", "_loop", "_woken")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._woken: dict[Sleeper, None] = {}
        self._is_scheduled = False
        self._gathering = False

    def wake(self, sleeper: Sleeper) -> None:
        """Have it look soon."""
        self._woken[sleeper] = None
        if not self._gathering and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._look_later)

    def gather(self) -> None:
        """More may happen before it is worth looking, until `let_go`."""
        self._gathering = True

    def let_go(self) -> None:
        self._gathering = False
        if self._woken:
            self._look()

    def _look_later(self) -> None:
        self._is_scheduled = False
        self._look()

    def _look(self) -> None:
        woken, self._woken = self._woken, {}
        try:
            while woken:
                sleeper = next(iter(woken))
                del woken[sleeper]
                sleeper.look()
        finally:
            for sleeper in woken:
                self.wake(sleeper)
