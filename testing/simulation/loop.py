"""A simulated asyncio event loop for many hosts on one virtual clock. The same seed gives the same order of all
callbacks.

`schedule.py` chooses the callback that runs next. The contextvars context of a callback determines the host that it
belongs to, and the run of the host's process, which is called a life (a crash ends it). A callback of an ended life is
dropped when it would run.
"""

from __future__ import annotations

import asyncio
import gc
import socket
from asyncio import events
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from moldau.testing.simulation.handles import SimulatedFuture, SimulatedHandle, SimulatedTask
from moldau.testing.simulation.life import LIFE, NANOSECONDS, Life
from moldau.testing.simulation.schedule import Schedule, SimulationFailed
from moldau.testing.simulation.trace import Trace

if TYPE_CHECKING:
    from moldau.testing.simulation.connection import Connection
    from moldau.testing.simulation.network import Listener, Network

T = TypeVar("T")


class SimulatedLoop(Schedule, asyncio.AbstractEventLoop):
    """The asyncio event loop that all hosts of a simulation share."""

    network: Network

    def __init__(self, seed: int | str, driver: Life, trace: Trace) -> None:
        super().__init__(seed, driver, trace)
        self._running = False

    # --- running ------------------------------------------------------------------------------------------------

    def run_until_complete(self, future: Awaitable[T]) -> T:  # type: ignore[override]
        return self.run_until_limit(future, 1 << 62)

    def run_until_limit(self, future: Awaitable[T], limit_ns: int) -> T:
        """Run until the future is done, and return its result. Raises `SimulationStuck` if it is not done at the
        virtual time `limit_ns`, even in a busy loop.
        """
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

    def stop(self) -> None:
        self._stopping = True

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Drop all callbacks, and ignore all later calls of the loop, because coroutines that are closed may still make
        some.
        """
        self._closed = True
        self._ready.clear()
        self._heap.clear()

    # --- scheduling ---------------------------------------------------------------------------------------------

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
        """Listen on the host to which the current callback belongs. Options about kernels (backlog, reuse_port) have no
        effect.
        """
        _plain_only(options)
        node = self.network.nodes[self.current.host]
        return self.network.listen(node, protocol_factory, host, port or 0, serving=start_serving)

    async def getaddrinfo(  # type: ignore[override]
        self, host: str, port: int, *, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
    ) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        """Resolve a host name. Its only address is the name itself."""
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
