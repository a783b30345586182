"""The checkpoint files of all log directories of this broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from moldau.broker.runtime.environment import Environment
from moldau.storage.directory.log_directory import HighWatermarkOf, LogDirectory

CHANGES_AT_ONCE: Final = 100
"""The number of changed logs whose offsets are noted for a checkpoint before other callbacks of the event loop run."""


class LogCheckpoints:
    """Writes the checkpoints of all log directories. Each file has the state at the beginning of its write.

    A truncation waits for a checkpoint with its lowered recovery point. When a thousand partitions change their leader,
    many callers ask for a write at once: all callers that ask during a write share the next one.
    """

    def __init__(self, environment: Environment, directories: Callable[[], Sequence[LogDirectory]]) -> None:
        """`directories`: returns the log directories that this broker serves at the time of a write."""
        self._environment = environment
        self._directories = directories
        self._lock = asyncio.Lock()
        self._next: asyncio.Task[bool] | None = None
        """The write that the next callers share; it has not begun."""
        self._high_watermark: HighWatermarkOf | None = None
        """Gives the high watermarks that the next write writes; None to leave their file unchanged."""
        self._writing: asyncio.Task[None] | None = None
        """The write in an executor thread. It goes on when the task that began it is cancelled."""

    async def write(self, high_watermark: HighWatermarkOf | None = None) -> bool:
        """Write the checkpoint files in which an offset changed. Returns whether all of them are durable.
        `high_watermark` gives the high watermark of a partition; if it is None, the file of high watermarks stays as
        it is.

        A directory that fails is taken offline, and the files of the others are still written.
        """
        if high_watermark is not None:
            self._high_watermark = high_watermark
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._write_next())
        return await asyncio.shield(self._next)

    async def finish(self) -> None:
        """Wait for the writes in progress, because closing a log directory writes the same files."""
        if self._next is not None:
            await asyncio.wait([self._next])
        if self._writing is not None:
            await asyncio.wait([self._writing])
            self._writing = None

    async def _write_next(self) -> bool:
        async with self._lock:
            self._next = None
            high_watermark, self._high_watermark = self._high_watermark, None
            return await self._write_all(high_watermark)

    async def _write_all(self, high_watermark: HighWatermarkOf | None) -> bool:
        is_written = True
        for directory in tuple(self._directories()):
            # What changes meanwhile is left to the last step, or a busy node would never come to an end.
            for _ in range(len(directory.logs) // CHANGES_AT_ONCE):
                if not directory.collect_changed_offsets(CHANGES_AT_ONCE, high_watermark):
                    break
                await asyncio.sleep(0)
            work = directory.begin_checkpoint(high_watermark)
            if not work:
                continue
            self._writing = asyncio.get_running_loop().create_task(self._environment.offload(work.write_files))
            try:
                await asyncio.shield(self._writing)
                directory.finish_checkpoint(work)
            except OSError as error:
                is_written = False
                directory.handle_error(error)
        return is_written
