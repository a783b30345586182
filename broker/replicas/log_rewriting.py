"""The common parts of the log cleaner and the log eraser: the logs that are being rewritten, the syncs before and after
a swap of segments, and the limit on the rate of their I/O.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from moldau.broker.metadata.cluster_view import DynamicConfig
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.flusher import Flusher
from moldau.storage.compaction.request import BytesProcessed, LogChanged
from moldau.storage.log.log import Log


class LogRewriting:
    """The logs whose segments are being rewritten, and the syncs before and after a swap of segments. Its methods are
    called on the event loop.
    """

    def __init__(self, flusher: Flusher, checkpoint: Callable[[], Awaitable[bool]]) -> None:
        """`checkpoint` writes the checkpoints of all directories, and returns whether all of them are durable."""
        self._flusher = flusher
        self._checkpoint = checkpoint
        self.in_progress: dict[Log, None] = {}
        """The logs that are being rewritten, each by either the cleaner or the eraser, because both use the same file
        names.
        """

    async def make_durable(self, its_log: Log, end_offset: int) -> None:
        """Flush the log at least up to `end_offset`, and write that recovery point to the checkpoint.

        Raises OSError, and `LogChanged` if the log has failed.
        """
        if its_log.recovery_point < end_offset:
            await self.flush(its_log)
        # Always: another write of the checkpoint may be in progress with an older recovery point.
        if not await self._checkpoint() or its_log.recovery_point < end_offset:
            raise LogChanged
        if its_log.directory_is_dirty:
            await self.flush(its_log)  # The mark of a new log was removed: with it a start ignores the checkpoints.

    async def flush(self, its_log: Log) -> None:
        """Wait until the current contents of the log, and its file names, are durable, or until it has failed."""
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._flusher.call_when_durable([its_log], partial(_settle, durable))
        await durable


class IoThrottle:
    """Delays the I/O of a rewriting, so that it stays below `log.cleaner.io.max.bytes.per.second`, which may change."""

    def __init__(self, settings: DynamicConfig, environment: Environment) -> None:
        self._settings = settings
        self._environment = environment
        self._began_ms = environment.monotonic_ms()
        self._moved = 0

    async def pace(self, moved: BytesProcessed) -> None:
        """Count the bytes in `moved`, and wait until the average rate since the beginning is not above the limit."""
        await asyncio.sleep(self.delay_s(moved.bytes_read + moved.bytes_written))

    def delay_s(self, size: int) -> float:
        """Count `size` more bytes of I/O. Returns the time (seconds) to wait before the next I/O."""
        self._moved += size
        rate = self._settings.config.real("log.cleaner.io.max.bytes.per.second")
        due_ms = self._began_ms + self._moved * 1000 / rate
        return max(0.0, due_ms - self._environment.monotonic_ms()) / 1000


def _settle(durable: asyncio.Future[None]) -> None:
    if not durable.done():
        durable.set_result(None)
