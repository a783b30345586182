"""The order of a simulation: runs the callbacks of many hosts, one at a time, on one virtual clock. The same seed gives
the same order.

ready queue   a FIFO for each life of a host, as asyncio promises inside one process
choice        If several hosts have a callback ready, the seed chooses the host that runs its next one.
time          In integer nanoseconds. Every callback takes CALLBACK_NS, so that even a busy loop reaches the time limit.
              If no callback is ready, the clock jumps to the next timer, in a heap keyed by (when, number).
blocking      A call that takes long (a sync on the loop) stops its own host for that long, after the callback. Readings
              of the precise clock (`Life.read_ns`) do, too, and the callback sees their time pass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextvars import Context
from heapq import heapify, heappop, heappush
from random import Random
from typing import Any

from moldau.testing.simulation.handles import SimulatedHandle
from moldau.testing.simulation.life import NANOSECONDS, Life
from moldau.testing.simulation.trace import FLUSH_COUNT, HOSTS_MAX, Trace

CALLBACK_NS = 1_000
_CANCELLED_TIMERS_MAX = 256


class SimulationFailed(AssertionError):
    """Raised for an error in the simulated system that none of its processes handled."""


class SimulationStuck(SimulationFailed):
    """Raised if the simulation cannot end: nothing is scheduled any more, or the limit of virtual time is reached."""


class Schedule(ABC):
    """The virtual clock, and the scheduled callbacks of all hosts. `driver` is the life of the test itself, which never
    crashes; its clock shows the virtual time exactly.
    """

    def __init__(self, seed: int | str, driver: Life, trace: Trace) -> None:
        self.now_ns = 0
        self.driver = driver
        self.current = driver
        self.trace = trace
        self.failure: BaseException | None = None
        # Called when the clock is about to jump, because no host is ready.
        self.check: Callable[[], None] | None = None
        self._random = Random(f"{seed}/schedule")
        self._ready: list[Life] = []
        self._heap: list[tuple[int, int, SimulatedHandle]] = []
        self._number = 0
        self._timers_cancelled = 0
        self._stopping = False
        self._closed = False

    @abstractmethod
    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Report an error in a callback to the current life, as an asyncio loop does."""

    # --- running ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        ready, heap, random = self._ready, self._heap, self._random.random
        trace, moment = self.trace, self.trace.moments.append
        readable = trace.lines is not None
        while not self._stopping:
            if heap and heap[0][0] <= self.now_ns:
                self._fire_due()
                continue
            if not ready:
                self._jump()
                continue
            count = len(ready)
            index = int(random() * count) if count > 1 else 0
            life = ready[index]
            handle = life.queue.popleft()
            if not life.queue:
                life.listed = False
                last = ready.pop()
                if index < count - 1:
                    ready[index] = last
            if handle._cancelled:
                continue
            moment(self.now_ns * HOSTS_MAX + life.host_number)
            if readable:
                trace.callback(self.now_ns, life.host, handle._callback)
            self.current = life
            try:
                handle._context.run(handle._callback, *handle._args)  # type: ignore[union-attr]
            except BaseException as error:
                self._callback_failed(life, handle, error)
            self.current = self.driver
            self.now_ns += CALLBACK_NS
            if life.spent_ns or life.meter.cost_ns:
                self.block(life, life.take_cost_ns())

    def _fire_due(self) -> None:
        heap = self._heap
        while heap and heap[0][0] <= self.now_ns:
            handle = heappop(heap)[2]
            handle.timed = False
            if handle._cancelled:
                self._timers_cancelled -= 1
            elif handle.life is None:
                handle._callback(*handle._args)
            else:
                self._enqueue(handle.life, handle)

    def _jump(self) -> None:
        if len(self.trace.moments) >= FLUSH_COUNT:
            self.trace.flush()
        if self.check is not None:
            self.check()
        if self._stopping:
            return
        self.now_ns = self._heap[0][0]

    def _limit_reached(self) -> None:
        idle = not self._heap and not self._ready
        reason = "nothing is left that could ever happen" if idle else "the limit of virtual time is reached"
        raise SimulationStuck(f"{reason} ({self.now_ns / NANOSECONDS:.3f} s)")

    def _callback_failed(self, life: Life, handle: SimulatedHandle, error: BaseException) -> None:
        if not life.alive:
            return  # it unwound because its process ended under it
        if isinstance(error, Exception):
            message = f"exception in callback {handle._callback!r}"
            self.call_exception_handler({"message": message, "exception": error, "handle": handle})
        else:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """End the run: `run_until_complete` raises this error. Of several errors the first one is raised."""
        if self.failure is None:
            self.failure = error
        self._stopping = True

    # --- scheduling ---------------------------------------------------------------------------------------------

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def post(self, life: Life, context: Context, callback: Callable[..., object], *args: Any) -> None:
        """Schedule a callback like `call_soon`, but for the life that the caller names. The network calls hosts by
        it.
        """
        self._enqueue(life, SimulatedHandle(self, life, context, callback, args))

    def at(self, when_ns: int, callback: Callable[..., object], *args: Any) -> SimulatedHandle:
        """Schedule an event of the simulated world at the virtual time `when_ns`, such as an arrival of data. It
        belongs to no host.
        """
        handle = SimulatedHandle(self, None, None, callback, args)
        self._push(when_ns, handle)
        return handle

    def _enqueue(self, life: Life, handle: SimulatedHandle) -> None:
        if life.alive and not self._closed:
            life.queue.append(handle)
            if not life.listed and not life.held:
                life.listed = True
                self._ready.append(life)

    def _push(self, when_ns: int, handle: SimulatedHandle) -> None:
        if not self._closed:
            handle.timed = True
            self._number += 1
            heappush(self._heap, (when_ns, self._number, handle))

    def timer_cancelled(self) -> None:
        self._timers_cancelled += 1
        if self._timers_cancelled > _CANCELLED_TIMERS_MAX and self._timers_cancelled * 2 > len(self._heap):
            self._heap[:] = [entry for entry in self._heap if not entry[2]._cancelled]
            heapify(self._heap)
            self._timers_cancelled = 0

    # --- lives --------------------------------------------------------------------------------------------------

    def end(self, life: Life) -> None:
        """End a life: none of its callbacks runs again, so that not even its `finally` blocks run."""
        life.alive = False
        self._unlist(life)

    def hold(self, life: Life) -> None:
        life.held += 1
        self._unlist(life)

    def unhold(self, life: Life) -> None:
        life.held -= 1
        if not life.held and life.queue and life.alive:
            life.listed = True
            self._ready.append(life)

    def block(self, life: Life, duration_ns: int) -> None:
        """Run no callback of a life's host for `duration_ns`."""
        if life.alive:
            self.hold(life)
            self.at(self.now_ns + duration_ns, self.unhold, life)

    def _unlist(self, life: Life) -> None:
        if life.listed:
            life.listed = False
            self._ready.remove(life)
