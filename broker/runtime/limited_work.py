"""Runs work that may crash, or take memory or time without limit, in another process with limits, one request after the
other.

    ask ──▶ turn of the client ─▶ turn of the process ──▶ the process, started if there is none ──▶ answer
                                                     └──▶ it ends, or takes too long: `WorkProcessEnded`, no process

A client, such as a user at an address, has at most one request in the queue of the process. So the requests of other
clients are done in between. If the caller is cancelled, its request has `CANCELLED_GRACE_S` to end by itself, so that
not every cancellation needs a new process.
"""

from __future__ import annotations

import asyncio
from signal import Signals
from typing import Final
from weakref import WeakValueDictionary

from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.tasks import Spawn
from moldau.broker.runtime.work_reply import WorkerLimits
from moldau.broker.runtime.worker import RunningWork, Work, WorkerDied

CANCELLED_GRACE_S: Final = 0.25
MEBIBYTE: Final = 1 << 20


class WorkProcessEnded(Exception):
    """The process of the work ended before it answered, or had to be ended. The text says why."""


class LimitedWorker:
    """A process that answers one request after the other, and ends when it is not used. `work` makes a generator that
    receives requests and yields their answers. Its first value is not an answer, and is dropped.
    """

    def __init__(
        self,
        environment: Environment,
        spawn: Spawn,
        work: Work[object],
        limits: WorkerLimits,
        *,
        wall_s: float,
        idle_s: float,
        waiting_max: int,
    ) -> None:
        """`wall_s`: the maximum time for one request. `idle_s`: the time after which a process without requests ends.
        `waiting_max`: the maximum number of waiting requests of all clients.
        """
        self._environment = environment
        self._spawn = spawn
        self._work = work
        self._limits = limits
        self._wall_s = wall_s
        self._idle_s = idle_s
        self._waiting_max = waiting_max
        self._running: RunningWork[object] | None = None
        self._turn = asyncio.Lock()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._waiting = 0
        self._idle: asyncio.TimerHandle | None = None

    async def ask(self, sent: object, client: str) -> object:
        """Send a request to the work, and return its answer. `client` identifies whose request it is. Raises
        `WorkProcessEnded`, and what the work raises.
        """
        if self._waiting >= self._waiting_max:
            raise WorkProcessEnded(f"{self._waiting} pieces of work wait already")
        turn = self._turns.setdefault(client, asyncio.Lock())
        self._waiting += 1
        try:
            async with turn:
                answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
                self._spawn(self._answer(sent, answer), "limited work")
                return await answer
        finally:
            self._waiting -= 1

    async def _answer(self, sent: object, answer: asyncio.Future[object]) -> None:
        async with self._turn:
            if answer.done():
                return  # The client has left.
            if self._idle is not None:
                self._idle.cancel()
            try:
                result = await self._step(sent, answer)
            except BaseException as failure:
                self.close()  # A generator that raised has ended.
                if not isinstance(failure, Exception):
                    raise
                if not answer.done():
                    answer.set_exception(failure)
                return
            self._idle = asyncio.get_running_loop().call_later(self._idle_s, self.close)
            if not answer.done():
                answer.set_result(result)

    async def _step(self, sent: object, answer: asyncio.Future[object]) -> object:
        try:
            async with asyncio.timeout(self._wall_s) as deadline:

                def left(_: object) -> None:
                    deadline.reschedule(asyncio.get_running_loop().time() + CANCELLED_GRACE_S)

                answer.add_done_callback(left)
                try:
                    if self._running is None:
                        self._running = self._environment.in_process(self._work, self._limits)
                        await self._running.next_event()
                    return await self._running.next_event(sent)
                finally:
                    answer.remove_done_callback(left)
        except TimeoutError:
            raise WorkProcessEnded(f"it took longer than {self._wall_s:g} s") from None
        except MemoryError:
            raise WorkProcessEnded(f"it took more memory than {self._limits.memory_bytes // MEBIBYTE} MiB") from None
        except WorkerDied as died:
            raise WorkProcessEnded(_reason(died, self._limits)) from None

    def close(self) -> None:
        """End the process, if there is one."""
        if self._running is not None:
            self._running.close()
            self._running = None


def _reason(died: WorkerDied, limits: WorkerLimits) -> str:
    if died.status is None:
        return str(died)
    if died.status == -Signals.SIGXCPU:
        return f"it took more than {limits.step_cpu_s} s of processor time"
    if died.status < 0:
        return f"its process was ended by {Signals(-died.status).name}"
    return f"its process ended with status {died.status}"
