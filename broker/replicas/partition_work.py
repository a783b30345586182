"""Making and deleting logs beside the loop: a few at a time, in the order in which the metadata says so.

A few new partitions are made at once. A thousand would hold up the loop for a second, so more than a few become jobs,
as does all that comes while there are any:

    metadata ── Make, Delete ──▶ jobs ── a slice ──▶ thread ──▶ loop: the partition is served, or its tree removed later

Until it is there, a partition answers that this broker does not lead it yet; what has changed meanwhile is looked up
when it is there. Replies that promise partitions wait for the jobs.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Final, NamedTuple, Protocol

from broker.replicas.file_removal import FileRemoval
from broker.replicas.local_logs import LocalLogs, NewLog
from broker.runtime.environment import Environment
from broker.runtime.tasks import Tasks
from storage.log.log import Log
from storage.log_config import LogConfig

AT_ONCE_MAX: Final = 10
"""So many partitions are made or deleted where the metadata is followed."""
SLICE_COUNT: Final = 20
"""Jobs done in a thread before the loop takes over what they made."""


class Make(NamedTuple):
    """A new partition of this broker."""

    topic: str
    topic_id: bytes
    partition: int


class Delete(NamedTuple):
    """A log whose partition is gone."""

    log: Log


class NewPartitions(Protocol):
    """What the metadata wants of new partitions at the moment, which may have changed since a job was given."""

    def is_wanted(self, new: Make) -> bool:
        """Whether the partition still is this broker's, and not there."""

    def log_config(self, topic: str) -> LogConfig: ...

    def take(self, new: Make, made: Log | None) -> None:
        """Serve the partition on the log that was made for it."""


class PartitionWork:
    """One queue of jobs for a broker."""

    def __init__(self, environment: Environment, logs: LocalLogs, removal: FileRemoval) -> None:
        self._logs = logs
        self._removal = removal
        self._spawn = Tasks(environment.halt).spawn
        """Not the broker's: whoever stops waits for a job, and cancels none, whose thread would go on unheard."""
        self._jobs: deque[Make | Delete] = deque()
        self._waiting: list[Callable[[], None]] = []
        self._is_running = False
        self._partitions: NewPartitions | None = None

    def takes(self, jobs: Sequence[Make | Delete], partitions: NewPartitions) -> bool:
        """Whether these are so many that they are done here; else the caller does them at once. `partitions`: takes
        those that are made."""
        if len(jobs) <= AT_ONCE_MAX and not self._is_running:
            return False
        self._partitions = partitions
        self._jobs += jobs
        if not self._is_running:
            self._is_running = True
            self._spawn(self._run())
        return True

    def when_done(self, done: Callable[[], None]) -> None:
        """Call when there are no jobs left, at once where there are none."""
        if self._is_running:
            self._waiting.append(done)
        else:
            done()

    async def finish(self) -> None:
        """The node stops: what was deleted must not be found again, and no thread may be at work on logs that are about
        to be closed. What was not made will be, at the next start."""
        deleted = [job.log for job in self._jobs if isinstance(job, Delete)]
        self._jobs.clear()
        for each in deleted:
            self._logs.delete(each)
        ended = asyncio.get_running_loop().create_future()
        self.when_done(partial(ended.set_result, None))
        await ended

    async def _run(self) -> None:
        while self._jobs:
            if isinstance(self._jobs[0], Make):
                await self._make([job for job in self._slice() if isinstance(job, Make)])
            else:
                await self._delete([job.log for job in self._slice() if isinstance(job, Delete)])
        self._is_running = False
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done()

    def _slice(self) -> list[Make | Delete]:
        """The next jobs of one kind."""
        kind = type(self._jobs[0])
        count = 0
        for job in islice(self._jobs, SLICE_COUNT):
            if type(job) is not kind:
                break
            count += 1
        return [self._jobs.popleft() for _ in range(count)]

    async def _make(self, jobs: Sequence[Make]) -> None:
        partitions, logs = self._partitions, self._logs
        assert partitions is not None, "jobs come with what takes the partitions that they make"
        wanted = [job for job in jobs if partitions.is_wanted(job)]
        made = await logs.make(
            [NewLog(job.topic, job.partition, job.topic_id, partitions.log_config(job.topic)) for job in wanted]
        )
        for job, log in zip(wanted, made, strict=True):
            if partitions.is_wanted(job):
                partitions.take(job, log)
            elif log is not None:
                self._remove(logs.delete(log), log)

    async def _delete(self, deleted: Sequence[Log]) -> None:
        paths = await self._logs.delete_many(deleted)
        for path, log in zip(paths, deleted, strict=True):
            self._remove(path, log)

    def _remove(self, path: str | None, log: Log) -> None:
        if path is not None:
            self._removal.remove_later([path], log.config.file_delete_delay_ms)
