"""Ends of waits that hardly ever come: most who wait are answered long before, so setting and cancelling cost next to
nothing.

A timer of the event loop is made and cancelled for a few microseconds, which every parked produce and fetch would pay.
Waits of one length end in the order in which they began, so they share a timer: that of the oldest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

QUEUES_MAX: Final = 64
"""So many lengths are kept apart; clients choose them, and a queue lives until its timer has gone off."""


class Timeouts:
    """Of one event loop."""

    __slots__ = ("_loop", "_queues")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queues: dict[int, TimeoutQueue] = {}

    def after(self, delay_ms: int, callback: Callable[[], None]) -> Timeout:
        """Call back once, after that long, unless it is cancelled before."""
        queue = self._queues.get(delay_ms)
        if queue is None:
            queue = TimeoutQueue(self._loop, delay_ms, self._queues)
            if len(self._queues) < QUEUES_MAX:
                self._queues[delay_ms] = queue
        return queue.add(callback)


class TimeoutQueue:
    """The waits of one length, the oldest first."""

    __slots__ = ("_delay_ms", "_loop", "_queues", "_timer", "waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop, delay_ms: int, queues: dict[int, TimeoutQueue]) -> None:
        self._loop = loop
        self._delay_ms = delay_ms
        self._queues = queues
        self._timer: asyncio.TimerHandle | None = None
        self.waiting: dict[Timeout, None] = {}

    def add(self, callback: Callable[[], None]) -> Timeout:
        timeout = Timeout(self, callback, self._loop.time() + self._delay_ms / 1000)
        self.waiting[timeout] = None
        if self._timer is None:
            self._timer = self._loop.call_at(timeout.deadline_s, self._look)
        return timeout

    def _look(self) -> None:
        """The wait for which the timer was set may be over long since: set it for the one that is the oldest now."""
        self._timer = None
        now_s = self._loop.time()
        for timeout in self.waiting:
            if timeout.deadline_s > now_s:
                self._timer = self._loop.call_at(timeout.deadline_s, self._look)
                return
            self._loop.call_soon(self._end, timeout)
        if self._queues.get(self._delay_ms) is self:
            del self._queues[self._delay_ms]

    def _end(self, timeout: Timeout) -> None:
        """In a callback of its own: one that fails takes no other with it, and one may still cancel another."""
        if timeout in self.waiting:
            callback = timeout.callback
            timeout.cancel()
            callback()


class Timeout:
    """The end of one wait. It forgets its callback once that is over: who waits holds the end of it, and a cycle would
    be left to the collector."""

    __slots__ = ("_queue", "callback", "deadline_s")

    def __init__(self, queue: TimeoutQueue, callback: Callable[[], None], deadline_s: float) -> None:
        self._queue = queue
        self.callback = callback
        self.deadline_s = deadline_s

    def cancel(self) -> None:
        """Never call back. Nothing where it has, or was cancelled before."""
        self._queue.waiting.pop(self, None)
        self.callback = _nothing


def _nothing() -> None:
    pass
