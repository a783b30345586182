"""Runs and supervises the tasks of a broker. Periodic jobs run independently of each other. If a job ends with an
OSError, the error is logged, and the job runs again at its next time.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Final, Generic, Protocol, TypeVar

from moldau.protocol.late_tuple import NamedTuple

log = logging.getLogger("moldau.background")


T = TypeVar("T")
SLICE_COUNT: Final = 50
"""The number of elements that `InSlices` yields in one event loop iteration; the work on each may take 40 µs."""


class Spawn(Protocol):
    """Runs a coroutine as a supervised task, like `Tasks.spawn`."""

    def __call__(self, work: Coroutine[object, object, None], name: str = "", /) -> object: ...


class Job(NamedTuple):
    """A periodic job: `run` is called every `interval_ms`, the first time after `delay_ms` (after `interval_ms` if that
    is None).
    """

    name: str
    interval_ms: int
    run: Callable[[], Awaitable[None]]
    delay_ms: int | None = None


class InSlices(Generic[T]):
    """An asynchronous iterator over `elements` that yields `SLICE_COUNT` of them in each event loop iteration, so that
    other callbacks run in between. The source of the elements must not change meanwhile.
    """

    def __init__(self, elements: Iterable[T]) -> None:
        self._left = iter(elements)
        self._count = 0

    def __aiter__(self) -> InSlices[T]:
        return self

    async def __anext__(self) -> T:
        self._count += 1
        if self._count > SLICE_COUNT:
            self._count = 1
            await asyncio.sleep(0)
        for element in self._left:
            return element
        raise StopAsyncIteration


class Tasks:
    """Supervises the broker's coroutines: every failure is logged and reported, and a stop ends all of them."""

    def __init__(self, failed: Callable[[str], None]) -> None:
        self._failed = failed
        self._tasks: dict[asyncio.Task[None], None] = {}
        """The running tasks in the order of their creation. The order of a set would differ from run to run."""

    def spawn(self, work: Coroutine[object, object, None], name: str = "") -> asyncio.Task[None]:
        """Run a coroutine as a supervised task. An exception that leaves it is a bug of this broker. It is reported to
        `failed`, which stops the node, because its state is unknown.
        """
        name = name or getattr(work, "__qualname__", repr(work))
        task = asyncio.get_running_loop().create_task(self._supervise(work, name), name=name)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        task.add_done_callback(lambda _: _close_unbegun(work))
        return task

    def run_periodically(self, job: Job) -> asyncio.Task[None]:
        return self.spawn(_repeat(job), job.name)

    async def stop(self) -> None:
        """Cancel all tasks, including those that start during the call, and wait until they have ended."""
        while tasks := list(self._tasks):
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _supervise(self, work: Coroutine[object, object, None], name: str) -> None:
        try:
            await work
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("%s failed", name)
            self._failed(f"{name} failed")


def _close_unbegun(work: Coroutine[object, object, None]) -> None:
    """Close a coroutine whose task was cancelled before its first step, because Python warns of a coroutine that is
    never awaited.
    """
    if inspect.iscoroutine(work) and inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
        work.close()


async def _repeat(job: Job) -> None:
    await asyncio.sleep((job.interval_ms if job.delay_ms is None else job.delay_ms) / 1000)
    while True:
        try:
            await job.run()
        except OSError as error:
            log.error("%s: %s", job.name, error)
        await asyncio.sleep(job.interval_ms / 1000)
