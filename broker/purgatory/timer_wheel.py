"""The timer wheel: timeouts that are cheap to set and to cancel, because most are cancelled before they fire.

A timer of the event loop takes some microseconds to set and to cancel, for every produce and fetch that waits. Waits of
the same length end in the order in which they began. So they share a queue, and one timer of the event loop for the
oldest of them. Apache Kafka's wheel has buckets by time for the same reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

QUEUES_MAX: Final = 64
"""The maximum number of queues, one for each length of wait.

Waits of further lengths have timers of their own. Clients choose the lengths, so their number is not bounded otherwise.
"""


class Timeouts:
    """The timeouts of one event loop: waits of the same length share a timer."""

    __slots__ = ("_loop", "_queues")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queues: dict[int, TimeoutQueue] = {}

    def call_after(self, delay_ms: int, callback: Callable[[], None]) -> Timeout:
        """Call `callback` once after `delay_ms`, unless the returned timeout is cancelled before."""
        queue = self._queues.get(delay_ms)
        if queue is None:
            queue = TimeoutQueue(self._loop, delay_ms, self._queues)
            if len(self._queues) < QUEUES_MAX:
                self._queues[delay_ms] = queue
        return queue.add(callback)


class TimeoutQueue:
    """The timeouts of one length, the oldest first."""

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
        """Fire the timeouts whose time is over, and set the timer for the oldest of the others. The timeout for which
        the timer was set may have been cancelled.
        """
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
        """Fire one timeout. Each is fired in a callback of its own, so that an exception of one does not affect the
        others, and one may cancel another.
        """
        if timeout in self.waiting:
            callback = timeout.callback
            timeout.cancel()
            callback()


class Timeout:
    """A timeout in the queue of its length.

    It drops its callback when it has fired or is cancelled: an operation refers to its timeout, and a reference cycle
    would be left to the garbage collector.
    """

    __slots__ = ("_queue", "callback", "deadline_s")

    def __init__(self, queue: TimeoutQueue, callback: Callable[[], None], deadline_s: float) -> None:
        self._queue = queue
        self.callback = callback
        self.deadline_s = deadline_s

    def cancel(self) -> None:
        """Cancel the timeout. No effect if it has fired or is cancelled."""
        self._queue.waiting.pop(self, None)
        self.callback = _nothing


def _nothing() -> None:
    pass
