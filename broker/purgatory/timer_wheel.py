"""The timer wheel: ends of waits, of which most are cancelled long before they come.

A timer of the event loop costs some microseconds to set and to cancel, which every produce and fetch that waits would
pay. Waits of one length end in the order in which they began: they share a queue, and one timer of the event loop for
the oldest. Apache Kafka's wheel has buckets by time for the same reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

QUEUES_MAX: Final = 64
"""So many lengths have a queue of their own, past that each wait has: clients choose the lengths."""


class Timeouts:
    """Of one event loop."""

    __slots__ = ("_loop", "_queues")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queues: dict[int, TimeoutQueue] = {}

    def after(self, delay_ms: int, callback: Callable[[], None]) -> Timeout:
        """Call back once after `delay_ms`, unless it is cancelled before."""
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
        """The wait for which the timer was set may have been cancelled: set it for the oldest that is left."""
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
        """In a callback of its own: one that fails takes no other with it, and one may cancel another before."""
        if timeout in self.waiting:
            callback = timeout.callback
            timeout.cancel()
            callback()


class Timeout:
    """The end of one wait. It forgets its callback when the wait is over: what waits holds its timeout, and a cycle
    would be left to the garbage collector."""

    __slots__ = ("_queue", "callback", "deadline_s")

    def __init__(self, queue: TimeoutQueue, callback: Callable[[], None], deadline_s: float) -> None:
        self._queue = queue
        self.callback = callback
        self.deadline_s = deadline_s

    def cancel(self) -> None:
        """Never call back. Nothing where it has called back, or was cancelled before."""
        self._queue.waiting.pop(self, None)
        self.callback = _nothing


def _nothing() -> None:
    pass
