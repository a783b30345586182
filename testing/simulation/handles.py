"""The handles, futures and tasks of the simulated event loop. Sets of them have the same order in every process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any, TypeVar

from moldau.testing.simulation.life import Life

if TYPE_CHECKING:
    from moldau.testing.simulation.schedule import Schedule

T = TypeVar("T")


class SimulatedHandle(asyncio.TimerHandle):
    __slots__ = ("life", "timed")

    def __init__(
        self,
        loop: Schedule,
        life: Life | None,
        context: Context | None,
        callback: Callable[..., object],
        args: tuple[Any, ...],
    ) -> None:
        # Not the base's __init__: it asks the loop for its debug mode each time.
        self._loop = loop
        self.life = life
        self._context = context
        self._callback = callback
        self._args = args
        self._cancelled = False
        self.timed = False

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._callback = _nothing
            self._args = ()
            if self.timed:
                self._loop.timer_cancelled()

    def cancelled(self) -> bool:
        return self._cancelled

    def __hash__(self) -> int:
        raise TypeError("handles have no order of their own: keep them in a list or a dict by name")

    def __repr__(self) -> str:
        return f"<SimulatedHandle {self._callback!r}>"


def _nothing() -> None:
    pass


class SimulatedFuture(asyncio.Future[T]):
    """A future whose hash is its number, so that a set of futures has the same order in every process."""

    simulated_number: int | None = None

    def __hash__(self) -> int:
        return _number_of(self)


class SimulatedTask(asyncio.Task[T]):
    life: Life
    simulated_number: int | None = None

    def __hash__(self) -> int:
        return _number_of(self)


def _number_of(future: SimulatedFuture[T] | SimulatedTask[T]) -> int:
    number = future.simulated_number
    if number is None:
        number = future.simulated_number = future.get_loop().next_number()  # type: ignore[attr-defined]
    return number
