"""The TLS handshakes of one node: they run outside of the event loop, limited in number and in time.

    steps in an executor thread  at most `STEPS_MAX` at a time; the others wait in the order of their arrival, as long
                                 as their handshake is open
    handshakes in progress       at most `WAITING_MAX`; if there are more, the oldest one ends
    time                         `HANDSHAKE_S` from the connection to the end of the handshake

A signature takes 0.1 to 2 ms. On the event loop, a thousand clients that connect at once would stall all others for a
second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

HANDSHAKE_S: Final = 10.0
STEPS_MAX: Final = 1
"""The maximum number of handshake steps that run at the same time.

With a second thread, a crowd of 500 clients was served in 1.8 s instead of 2.1 s, but the requests of all others waited
longer: their p99 was 2.0 times that without the crowd instead of 1.4.
"""
WAITING_MAX: Final = 2000


StepCallback = Callable[[BaseException | None], None]
"""Gets the result of a handshake step: the error that ended it, or None."""


class Handshake(Protocol):
    """A connection during its TLS handshake."""

    def give_up(self, reason: str) -> None:
        """Close the connection."""


class Handshakes:
    """Runs and limits the TLS handshakes in progress on a node."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._open: dict[Handshake, asyncio.TimerHandle] = {}
        """The open handshakes in order of arrival."""
        self._running = 0
        self._queue: dict[Handshake, tuple[Callable[[], BaseException | None], StepCallback]] = {}
        """The steps that wait for a thread, in the order of their arrival: at most one for each open handshake."""

    @property
    def count(self) -> int:
        """The number of handshakes in progress."""
        return len(self._open)

    def begin(self, handshake: Handshake) -> None:
        """Begin a handshake, which must end within `HANDSHAKE_S`. If `WAITING_MAX` are in progress, the oldest one is
        given up.
        """
        if len(self._open) >= WAITING_MAX:
            oldest = next(iter(self._open))
            self.end(oldest)
            oldest.give_up("there are too many handshakes at a time")
        self._open[handshake] = self._loop.call_later(HANDSHAKE_S, self._timed_out, handshake)

    def end(self, handshake: Handshake) -> None:
        """Stop counting a handshake, which has succeeded or failed. If a step of it waits, that step does not run."""
        self._queue.pop(handshake, None)
        timer = self._open.pop(handshake, None)
        if timer is not None:
            timer.cancel()

    def step(self, handshake: Handshake, work: Callable[[], BaseException | None], done: StepCallback) -> None:
        """Run `work`, one step of an open handshake, in an executor thread. The caller begins the next step when this
        one is done.

        `done` is called on the event loop with the result, even if the connection has ended while the step ran.
        """
        if self._running < STEPS_MAX:
            self._run(work, done)
        else:
            self._queue[handshake] = work, done

    def _run(self, work: Callable[[], BaseException | None], done: StepCallback) -> None:
        self._running += 1
        future = self._loop.run_in_executor(None, work)
        future.add_done_callback(lambda future: self._ran(future, done))

    def _ran(self, future: asyncio.Future[BaseException | None], done: StepCallback) -> None:
        self._running -= 1
        if self._queue:
            self._run(*self._queue.pop(next(iter(self._queue))))
        if not future.cancelled():
            done(future.exception() or future.result())

    def _timed_out(self, handshake: Handshake) -> None:
        self.end(handshake)
        handshake.give_up(f"the TLS handshake took longer than {HANDSHAKE_S:.0f} s")
