"""An asyncio event loop for many hosts on one virtual clock: same seed, same order of everything.

ready queue   one FIFO for each life of a host: asyncio's promise inside one process
choice        of several hosts with something ready, the seed says which runs its next callback
time          integer nanoseconds; every callback takes CALLBACK_NS, so that even a busy loop ends at the limit;
              where no callback is ready the clock jumps to the next timer; heap keyed (when, number)
life          which host and which of its lives a callback belongs to is carried by its contextvars context; what
              belongs to an ended life is dropped when its turn comes, also one of another life
blocking      a call that takes long (a sync on the loop) stops its host, and no other one, for that long
"""

from __future__ import annotations

import asyncio
import gc
import socket
from asyncio import events
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import Context, copy_context
from heapq import heapify, heappop, heappush
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from moldau.testing.simulation.handles import SimulatedFuture, SimulatedHandle, SimulatedTask
from moldau.testing.simulation.life import LIFE, NANOSECONDS, Life
from moldau.testing.simulation.trace import FLUSH_COUNT, HOSTS_MAX, Trace

if TYPE_CHECKING:
    from moldau.testing.simulation.connection import Connection
    from moldau.testing.simulation.network import Listener, Network

T = TypeVar("T")

CALLBACK_NS = 1_000
_CANCELLED_TIMERS_MAX = 256


class SimulationFailed(AssertionError):
    """Something in the simulated system went wrong, and no process in it handled that."""


class SimulationStuck(SimulationFailed):
    """Nothing is left that could ever happen, or the limit of virtual time is reached."""


class SimulatedLoop(asyncio.AbstractEventLoop):
    """`driver` is the life of the test itself: it never crashes, and its clock is the true one."""

    network: Network

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
        self._running = False
        self._closed = False

    # --- running ------------------------------------------------------------------------------------------------

    def run_until_complete(self, future: Awaitable[T]) -> T:  # type: ignore[override]
        return self.run_until_limit(future, 1 << 62)

    def run_until_limit(self, future: Awaitable[T], limit_ns: int) -> T:
        """Raises `SimulationStuck` where the future is not done by then; a busy loop gets there, too."""
        task = asyncio.ensure_future(future, loop=self)
        task.add_done_callback(self._stop_after)
        limit = self.at(limit_ns, self._limit_reached)
        try:
            self.run_forever()
        finally:
            limit.cancel()
            task.remove_done_callback(self._stop_after)
        return task.result()

    def _stop_after(self, future: asyncio.Future[Any]) -> None:
        self._stopping = True

    def run_forever(self) -> None:
        assert not self._running and not self._closed
        collecting = gc.isenabled()
        gc.disable()  # what the collector finalizes, and when, differs between processes
        outer = events._get_running_loop()
        events._set_running_loop(self)
        self._running = True
        self._stopping = False
        try:
            self._run()
        finally:
            self._running = False
            self.current = self.driver
            events._set_running_loop(outer)
            if collecting:
                gc.enable()
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure

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
            if life.meter.cost_ns:
                self.block(life, life.meter.take_cost_ns())

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
        """End the run: `run_until_complete` raises this. The first one wins."""
        if self.failure is None:
            self.failure = error
        self._stopping = True

    def stop(self) -> None:
        self._stopping = True

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """From now on everything is dropped silently: coroutines that are thrown away may still say goodbye."""
        self._closed = True
        self._ready.clear()
        self._heap.clear()

    # --- scheduling ---------------------------------------------------------------------------------------------

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def time(self) -> float:
        return self.current.local_ns(self.now_ns) / NANOSECONDS

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> SimulatedHandle:
        if context is None:
            context = copy_context()
            life = self.current
        else:
            life = context.get(LIFE, self.driver)
        handle = SimulatedHandle(self, life, context, callback, args)
        self._enqueue(life, handle)
        return handle

    def post(self, life: Life, context: Context, callback: Callable[..., object], *args: Any) -> None:
        """`call_soon` for a life that the caller knows: the network's way into a host."""
        self._enqueue(life, SimulatedHandle(self, life, context, callback, args))

    def _enqueue(self, life: Life, handle: SimulatedHandle) -> None:
        if life.alive and not self._closed:
            life.queue.append(handle)
            if not life.listed and not life.held:
                life.listed = True
                self._ready.append(life)

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> SimulatedHandle:
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> SimulatedHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> SimulatedHandle:
        if context is None:
            context = copy_context()
            life = self.current
        else:
            life = context.get(LIFE, self.driver)
        handle = SimulatedHandle(self, life, context, callback, args)
        handle._when = when  # type: ignore[attr-defined]
        self._push(life.true_ns(round(when * NANOSECONDS)), handle)
        return handle

    def at(self, when_ns: int, callback: Callable[..., object], *args: Any) -> SimulatedHandle:
        """An event of the world (a cable, a nemesis), which belongs to no host."""
        handle = SimulatedHandle(self, None, None, callback, args)
        self._push(when_ns, handle)
        return handle

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
        """Nothing of this life runs again, not even its `finally` blocks."""
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
        """Block the host for this long (ns)."""
        if life.alive:
            self.hold(life)
            self.at(self.now_ns + duration_ns, self.unhold, life)

    def _unlist(self, life: Life) -> None:
        if life.listed:
            life.listed = False
            self._ready.remove(life)

    # --- the rest of asyncio --------------------------------------------------------------------------------------

    def create_future(self) -> SimulatedFuture[Any]:
        return SimulatedFuture(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> SimulatedTask[T]:
        if context is None:
            context = copy_context()
            life = self.current
        else:
            life = context.get(LIFE, self.driver)
        # Names that asyncio numbers would differ from one run to the next in one process.
        task = SimulatedTask(coro, loop=self, name=name or f"{life.host}-task", context=context)
        task.life = life
        return task

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | Sequence[str] | None = None,
        port: int | None = None,
        *,
        start_serving: bool = True,
        **options: Any,
    ) -> Listener:
        """On the host that calls; options about kernels (backlog, reuse_port) mean nothing here."""
        _plain_only(options)
        node = self.network.nodes[self.current.host]
        return self.network.listen(node, protocol_factory, host, port or 0, serving=start_serving)

    async def getaddrinfo(  # type: ignore[override]
        self, host: str, port: int, *, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
    ) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        """A host's name is its address."""
        return [(socket.AF_INET, socket.SOCK_STREAM, proto, "", (host, port))]

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        **options: Any,
    ) -> tuple[Connection, asyncio.BaseProtocol]:
        _plain_only(options)
        assert host is not None and port is not None
        return await self.network.connect(self.network.nodes[self.current.host], protocol_factory, host, port)

    def run_in_executor(self, executor: object, func: Callable[..., T], *args: object) -> asyncio.Future[T]:
        raise AssertionError("threads belong to the environment: `offload`")

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        pass

    async def shutdown_asyncgens(self) -> None:
        pass

    async def shutdown_default_executor(self) -> None:
        pass

    def get_exception_handler(self) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None:
        return self.current.exception_handler

    def set_exception_handler(
        self, handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None
    ) -> None:
        self.current.exception_handler = handler

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        task = context.get("task")
        life = task.life if isinstance(task, SimulatedTask) else self.current
        if not life.alive or self._closed:
            return
        if life.exception_handler is not None:
            life.exception_handler(self, context)
        else:
            self.default_exception_handler(context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        failed = SimulationFailed(f"{self.current.host}: {context['message']}: {error!r}")
        failed.__cause__ = error
        self.fail(failed)


def _plain_only(options: dict[str, Any]) -> None:
    for name in ("ssl", "sock", "local_addr"):
        assert not options.get(name), f"{name} is not simulated"
