"""A clock that a test moves forward. Retention, compaction lags, tokens, and the timeouts of sessions and transactions
follow it.

The parts that keep the cluster together follow the real clock: broker heartbeats, the quorum, the in-sync replicas, and
the waits of requests. So a step of hours fences no broker and moves no leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moldau.broker.faults.faults import Faults
    from moldau.broker.runtime.environment import Environment
    from moldau.storage.files.port import FileSystem


class MovableClock:
    """The time (ms) by which a node's clock is ahead of the real one, and the timers that depend on it."""

    def __init__(self) -> None:
        self.offset_ms = 0
        self._timers: dict[MovableTimer, None] = {}

    def advance(self, step_ms: int) -> None:
        """Move the clock forward by `step_ms`. Timers that become due fire in the next iterations of the event loop, in
        their order.
        """
        self.offset_ms += step_ms
        for timer in sorted(self._timers, key=MovableTimer.when):
            timer.move(step_ms / 1000)

    def timer(
        self, loop: asyncio.AbstractEventLoop, delay_s: float, callback: Callable[..., object], *args: Any
    ) -> Any:
        """Call `callback` after `delay_s`, or earlier if `advance` moves the clock forward. Returns a handle like that
        of `loop.call_later`.
        """
        timer = MovableTimer(self._timers, loop, delay_s, callback, args)
        self._timers[timer] = None
        return timer


class MovableTimer:
    """The handle of a timer that fires earlier if the clock is moved forward."""

    def __init__(
        self,
        timers: dict[MovableTimer, None],
        loop: asyncio.AbstractEventLoop,
        delay_s: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
    ) -> None:
        self._timers = timers
        self._loop = loop
        self._call = callback
        self._args = args
        self._due_s = loop.time() + delay_s
        self._handle = loop.call_later(delay_s, self._fire)

    def when(self) -> float:
        """The time at which the timer is due, by the clock of the event loop."""
        return self._due_s

    def cancelled(self) -> bool:
        return self not in self._timers

    def cancel(self) -> None:
        self._handle.cancel()
        self._timers.pop(self, None)

    def move(self, step_s: float) -> None:
        self._due_s -= step_s
        self._handle.cancel()
        self._handle = self._loop.call_later(max(0.0, self._due_s - self._loop.time()), self._fire)

    def _fire(self) -> None:
        self._timers.pop(self, None)
        self._call(*self._args)


class FaultyEnvironment:
    """An environment for a node with fault injection. Its files can fail, and its wall clock follows the
    `MovableClock`. All other calls go to the real environment.
    """

    def __init__(self, environment: Environment, faults: Faults) -> None:
        from moldau.broker.faults.files import FaultyFiles

        self._environment = environment
        self._clock = faults.clock
        self.fs: FileSystem = FaultyFiles(environment.fs, faults)  # type: ignore[assignment]  # all else is the files'

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)

    def wall_ms(self) -> int:
        return self._environment.wall_ms() + self._clock.offset_ms


class MovableEnvironment:
    """An environment for the coordinators. Its monotonic clock follows the `MovableClock`. All other calls go to the
    real environment.
    """

    def __init__(self, environment: Environment, clock: MovableClock) -> None:
        self._environment = environment
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)

    def monotonic_ms(self) -> int:
        return self._environment.monotonic_ms() + self._clock.offset_ms


class MovableLoop:
    """An event loop for the coordinators. Its clock and its timers follow the `MovableClock`, so that a test can make
    timers fire earlier. All other calls go to the real event loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: MovableClock) -> None:
        self._loop = loop
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def time(self) -> float:
        return self._loop.time() + self._clock.offset_ms / 1000

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> Any:
        return self._clock.timer(self._loop, delay, callback, *args)

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> Any:
        return self.call_later(when - self.time(), callback, *args)
