"""Creating and deleting many logs in an executor thread, in the order of the metadata records.

A few new partitions are created directly on the event loop. A thousand would block it for a second, so many partitions
become jobs for a thread. While there are jobs, all further changes become jobs, too:

    metadata ── CreateLog, DeleteLog ──▶ jobs ── a slice ──▶ thread ──▶ loop: the partition is served, or its files are
                                                                        removed later

Until its log is created, the broker answers NOT_LEADER_OR_FOLLOWER for a partition. The metadata may change meanwhile,
so it is read again when the log is there. Replies that promise partitions (CreateTopics) wait for the jobs.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Final, Protocol

from moldau.broker.replicas.file_removal import FileRemoval
from moldau.broker.replicas.local_logs import LocalLogs, NewLog
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.tasks import Tasks
from moldau.protocol.late_tuple import NamedTuple
from moldau.storage.log.log import Log
from moldau.storage.log_config import LogConfig

AT_ONCE_MAX: Final = 10
"""The maximum number of partitions that are created or deleted directly on the event loop."""
SLICE_COUNT: Final = 20
"""The maximum number of jobs that the executor thread does in one call: the event loop serves the created partitions
before the next call.
"""


class CreateLog(NamedTuple):
    """A job: create the log of a new partition of this broker."""

    topic: str
    topic_id: bytes
    partition: int


class DeleteLog(NamedTuple):
    """A job: delete a log whose partition was deleted, or was moved to another broker."""

    log: Log


class NewPartitions(Protocol):
    """Serves new partitions as the current metadata assigns them. The metadata may have changed since a job was
    queued.
    """

    def is_wanted(self, new: CreateLog) -> bool:
        """Whether the partition is still assigned to this broker, and has no log yet."""

    def drop_new(self, new: CreateLog) -> None:
        """Note that the log of a partition that is not wanted any more is not created."""

    def log_config(self, topic: str) -> LogConfig: ...

    def serve_new(self, new: CreateLog, made: Log | None) -> None:
        """Serve a partition on the log `made`, or create its log if `made` is None because an executor thread could
        not.
        """


class PartitionWork:
    """The queue of a broker's jobs that create and delete logs."""

    def __init__(self, environment: Environment, logs: LocalLogs, removal: FileRemoval) -> None:
        self._logs = logs
        self._removal = removal
        self._spawn = Tasks(environment.halt).spawn
        """Starts tasks that a stop waits for. They are not cancelled, because the executor thread of a cancelled task
        would go on with the logs.
        """
        self._jobs: deque[CreateLog | DeleteLog] = deque()
        self._waiting: list[Callable[[], None]] = []
        self.is_running = False
        """Whether jobs are queued or being done."""
        self._partitions: NewPartitions | None = None

    def queue_if_many(self, jobs: Sequence[CreateLog | DeleteLog], partitions: NewPartitions) -> bool:
        """Queue jobs for the executor thread, and return True. If the jobs are few and no others are being done, queue
        nothing and return False: the caller has to do them directly.

        When the log of a new partition is created, `partitions` is told to serve the partition.
        """
        if len(jobs) <= AT_ONCE_MAX and not self.is_running:
            return False
        self._partitions = partitions
        self._jobs += jobs
        if not self.is_running:
            self.is_running = True
            self._spawn(self._run())
        return True

    def when_done(self, done: Callable[[], None]) -> None:
        """Call `done` once the queue has no jobs left, or at once if it has none now."""
        if self.is_running:
            self._waiting.append(done)
        else:
            done()

    async def finish(self) -> None:
        """Carry out the remaining deletions and wait for the thread, so that the logs can be closed at a stop of the
        node.

        Partitions that were not created yet are created by the next start.
        """
        deleted = [job.log for job in self._jobs if isinstance(job, DeleteLog)]
        self._jobs.clear()
        for each in deleted:
            self._logs.delete(each)
        ended = asyncio.get_running_loop().create_future()
        self.when_done(partial(ended.set_result, None))
        await ended

    async def _run(self) -> None:
        while self._jobs:
            if isinstance(self._jobs[0], CreateLog):
                await self._make([job for job in self._slice() if isinstance(job, CreateLog)])
            else:
                await self._delete([job.log for job in self._slice() if isinstance(job, DeleteLog)])
        self.is_running = False
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done()

    def _slice(self) -> list[CreateLog | DeleteLog]:
        """Remove the first jobs from the queue and return them: jobs of the same kind, `SLICE_COUNT` at most."""
        kind = type(self._jobs[0])
        count = 0
        for job in islice(self._jobs, SLICE_COUNT):
            if type(job) is not kind:
                break
            count += 1
        return [self._jobs.popleft() for _ in range(count)]

    async def _make(self, jobs: Sequence[CreateLog]) -> None:
        partitions, logs = self._partitions, self._logs
        assert partitions is not None, "jobs are queued together with the taker of their partitions"
        wanted: list[CreateLog] = []
        for job in jobs:
            if partitions.is_wanted(job):
                wanted.append(job)
            else:
                partitions.drop_new(job)
        made = await logs.make(
            [NewLog(job.topic, job.partition, job.topic_id, partitions.log_config(job.topic)) for job in wanted]
        )
        for job, log in zip(wanted, made, strict=True):
            if partitions.is_wanted(job):
                partitions.serve_new(job, log)
                continue
            partitions.drop_new(job)
            if log is not None:
                self._remove(logs.delete(log), log)

    async def _delete(self, deleted: Sequence[Log]) -> None:
        paths = await self._logs.delete_many(deleted)
        for path, log in zip(paths, deleted, strict=True):
            self._remove(path, log)

    def _remove(self, path: str | None, log: Log) -> None:
        if path is not None:
            self._removal.remove_later([path], log.config.file_delete_delay_ms)
