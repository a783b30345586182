"""The worker process in which segments are rewritten without erased records. It serves one request after the other, so
that its start is paid once for erase orders that follow each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from moldau.broker.runtime.environment import Environment
from moldau.protocol.primitives import MalformedMessage
from moldau.storage.compaction.request import LogChanged

if TYPE_CHECKING:
    from moldau.broker.runtime.worker import RunningWork
    from moldau.storage.erasure.erasing import EraseEvent, EraseRequest, EraseRequestDone

REQUESTS_MAX: Final = 1_000
"""The number of requests after which the process is replaced, so that what it keeps allocated has a bound."""


class ErasingProcess:
    """One worker process for the erase requests of a broker. Its methods are called on the event loop, by one task."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._work: RunningWork[EraseEvent | EraseRequestDone] | None = None
        self._requests = 0
        self._is_idle = True

    async def start(self) -> None:
        """Start the process, unless it runs. Raises `WorkerDied`, an OSError."""
        self._is_idle = False
        if self._work is not None:
            return
        await self._environment.offload(import_erasure)
        from moldau.storage.erasure.erasing import serve_erasing

        work = self._environment.in_process(serve_erasing)
        try:
            await work.next_event()
        except BaseException:
            work.close()
            raise
        self._work, self._requests = work, 0

    async def carry_out(self, request: EraseRequest, on_event: Callable[[EraseEvent], Awaitable[None]]) -> None:
        """Carry out a request, and call `on_event` with each event of the process. During the call the process works
        on, up to its next event.

        Raises what `erase` and `on_event` raise, and `WorkerDied`. After any error the process is ended.
        """
        from moldau.storage.erasure.erasing import EraseRequestDone

        await self.start()
        work, self._work = self._work, None
        assert work is not None
        try:
            event = await work.next_event(request)
            while not isinstance(event, EraseRequestDone):
                assert event is not None, "the work goes on until it is closed"
                event = await _handled(work, event, on_event)
        except BaseException:
            work.close()
            raise
        self._work = work
        self._requests += 1
        if self._requests >= REQUESTS_MAX:
            self.close()

    def close_if_idle(self) -> None:
        """End the process if no request came since the last call."""
        if self._is_idle:
            self.close()
        self._is_idle = True

    def close(self) -> None:
        """End the process if it runs."""
        if self._work is not None:
            self._work.close()
            self._work = None


def import_erasure() -> None:
    """Import the modules with which records are erased. Most brokers never need them. The import takes 20 ms of CPU,
    for which the event loop must not wait.
    """
    import moldau.storage.erasure.receipts  # noqa: F401


async def _handled(
    work: RunningWork[EraseEvent | EraseRequestDone],
    event: EraseEvent,
    on_event: Callable[[EraseEvent], Awaitable[None]],
) -> EraseEvent | EraseRequestDone | None:
    """Call `on_event` while the process goes on. Returns its next event. After an error of `on_event` the process has
    ended. Raises what `on_event` and `next_event` raise.
    """
    following = asyncio.ensure_future(work.next_event())
    try:
        await on_event(event)
        return await following
    except (OSError, MalformedMessage, LogChanged):
        work.close()
        # The next process must not find this one at work.
        await asyncio.gather(following, return_exceptions=True)
        raise
    finally:
        following.cancel()
