"""Writes the checkpoints of all log directories, one write at a time.

Callers that ask during a write share the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from moldau.broker.runtime.environment import Environment
from moldau.storage.checkpoints.offset_checkpoint import TopicPartition
from moldau.storage.directory.log_directory import LogDirectory

HighWatermarks = Mapping[TopicPartition, int]


class LogCheckpoints:
    """Writes the checkpoints, with the state at the time at which a write begins.

    A truncation waits for a checkpoint with its lowered recovery point. When a thousand partitions change their leader,
    many callers ask at once: all that ask during a write share the next one.
    """

    def __init__(self, environment: Environment, directories: Callable[[], Sequence[LogDirectory]]) -> None:
        """`directories`: gives the directories that are served."""
        self._environment = environment
        self._directories = directories
        self._lock = asyncio.Lock()
        self._next: asyncio.Task[bool] | None = None
        """The write that the next callers share; it has not begun."""
        self._high_watermarks: HighWatermarks | None = None
        """The high watermarks that the next write writes; None to leave their file unchanged."""
        self._writing: asyncio.Task[None] | None = None
        """The write in an executor thread. It goes on when the task that began it is cancelled."""

    async def write(self, high_watermarks: HighWatermarks | None = None) -> bool:
        """Write the checkpoints in which an offset changed. Returns whether all of them are durable now.

        A directory that fails is taken offline, and the others are still written.
        """
        if high_watermarks is not None:
            self._high_watermarks = high_watermarks
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._write_next())
        return await asyncio.shield(self._next)

    async def finish(self) -> None:
        """Wait for the writes in progress, because closing a directory writes the same files."""
        if self._next is not None:
            await asyncio.wait([self._next])
        if self._writing is not None:
            await asyncio.wait([self._writing])
            self._writing = None

    async def _write_next(self) -> bool:
        async with self._lock:
            self._next = None
            high_watermarks, self._high_watermarks = self._high_watermarks, None
            return await self._write_all(high_watermarks)

    async def _write_all(self, high_watermarks: HighWatermarks | None) -> bool:
        is_written = True
        for directory in tuple(self._directories()):
            mine = of_directory(directory, high_watermarks) if high_watermarks is not None else None
            work = directory.checkpoint(mine)
            if not work:
                continue
            self._writing = asyncio.get_running_loop().create_task(self._environment.offload(work.run))
            try:
                await asyncio.shield(self._writing)
                directory.checkpointed(work)
            except OSError as error:
                is_written = False
                directory.refused(error)
        return is_written


def of_directory(directory: LogDirectory, high_watermarks: HighWatermarks) -> dict[TopicPartition, int]:
    """The high watermarks of the partitions in a directory."""
    return {key: high_watermarks[key] for key in directory.logs if key in high_watermarks}
