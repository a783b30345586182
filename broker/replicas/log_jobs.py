"""The periodic jobs on logs: retention, flushes by time, checkpoints, expiry of producers, free space on full disks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Final

from moldau.broker.config.config import Config
from moldau.broker.replicas.file_removal import FileRemoval
from moldau.broker.replicas.local_logs import LocalLogs
from moldau.broker.replicas.replicas import Replicas
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.flusher import Flusher
from moldau.broker.runtime.tasks import Job
from moldau.protocol.primitives import MalformedMessage
from moldau.replication.partition import Partition
from moldau.storage.checkpoints.text_checkpoint import TopicPartition
from moldau.storage.log.changed_logs import ChangedLogs
from moldau.storage.log.log import Log
from moldau.storage.log_config import INT64_MAX

log = logging.getLogger("moldau.logs")

FLUSH_CHECK_INTERVAL_MS: Final = 1000
SPACE_CHECK_INTERVAL_MS: Final = 1000
PARTITIONS_AT_ONCE: Final = 10
"""The number of partitions that a job visits before other callbacks of the event loop run."""
FLUSH_QUIET_MS: Final = 10_000
"""The interval (ms) at which logs are checked: a log that got no records during one interval is flushed."""


class LogJobs:
    """The periodic jobs on the logs of a broker. A job that runs every few seconds visits only the logs that changed; a
    job that runs every few minutes visits all partitions. Other callbacks of the event loop run between the visits.
    """

    def __init__(
        self,
        config: Config,
        environment: Environment,
        replicas: Replicas,
        logs: LocalLogs,
        changes: ChangedLogs,
        flusher: Flusher,
        removal: FileRemoval,
        make_missing: Callable[[], None],
    ) -> None:
        """`changes`: the logs that changed since the last flush by time. `make_missing`: tries again to create the
        partitions that could not be created for lack of space.
        """
        self._config = config
        self._environment = environment
        self._replicas = replicas
        self._logs = logs
        self._changes = changes
        self._unflushed: dict[Log, None] = {}
        """The logs that had records after their recovery point at the last run of `flush`."""
        self._flusher = flusher
        self._removal = removal
        self._make_missing = make_missing
        self._flushed_by_time: dict[Log, None] = {}
        """The logs with flush.ms that had unflushed records at the last run of `flush`."""
        self._ends: dict[Log, int] = {}
        """For each log that had unflushed records at the last visit of `flush_quiet`: its end offset then."""
        self.segments_deleted = 0
        """The number of segments deleted by retention since the start."""

    def jobs(self) -> list[Job]:
        """The jobs with their intervals; the caller runs them."""
        config = self._config
        delay_ms = config.integer("log.initial.task.delay.ms")
        return [
            Job("retention", config.integer("log.retention.check.interval.ms"), self.retain, delay_ms),
            Job("flush", FLUSH_CHECK_INTERVAL_MS, self.flush),
            Job("quiet-flush", FLUSH_QUIET_MS, self.flush_quiet),
            Job("disk-space", SPACE_CHECK_INTERVAL_MS, self.look_for_room),
            Job("checkpoint", config.integer("replica.high.watermark.checkpoint.interval.ms"), self.checkpoint),
            Job("producer-expiry", config.integer("producer.id.expiration.check.interval.ms"), self.expire_producers),
        ]

    async def retain(self) -> None:
        """Delete the segments that retention.ms, retention.bytes or DeleteRecords allows to delete."""
        async for partition in self._partitions():
            segments_before, active = len(partition.log.segments), partition.log.active
            try:
                paths = partition.log.delete_old_segments(self._environment.wall_ms(), partition.high_watermark)
            except MalformedMessage as malformed:
                partition.log.mark_damaged(str(malformed))
                continue
            except OSError as error:
                log.error(
                    "retention could not delete segments of %s-%d, and tries again at the next check: %s",
                    partition.topic,
                    partition.index,
                    error,
                )
                continue
            if partition.log.active is not active:
                # Once the batches are gone, a start restores the producers from the snapshot that the roll has written.
                self._flusher.flush(partition.log)
            self.segments_deleted += max(0, segments_before - len(partition.log.segments))
            if paths:
                log.info(
                    "retention deleted segments of %s-%d, whose local log now begins at offset %d",
                    partition.topic,
                    partition.index,
                    partition.log.local_start_offset,
                )
                self._removal.remove_later(paths, partition.log.config.file_delete_delay_ms)

    async def flush(self) -> None:
        """Flush the logs whose flush.ms has passed."""
        now_ms = self._environment.wall_ms()
        for its_log in self._changes.take_logs():
            if its_log.recovery_point < its_log.end_offset:
                self._unflushed[its_log] = None
            if its_log.config.flush_ms < INT64_MAX:
                self._flushed_by_time[its_log] = None
        for its_log in tuple(self._flushed_by_time):
            is_gone = self._replicas.partition_of_log(its_log) is None
            if is_gone or not its_log.unflushed_count or its_log.config.flush_ms == INT64_MAX:
                del self._flushed_by_time[its_log]
            elif its_log.flush_is_due(now_ms):
                self._flusher.flush(its_log)

    async def flush_quiet(self) -> None:
        """Flush the logs that have got no records since the last visit, one at a time, so that a start after a crash
        need not check them. Produce requests pay nothing for it, and no client waits for it.

        DIVERGES: Apache Kafka flushes an active segment when it rolls, or as the settings say; a start after a crash
        reads all active segments.
        """
        ends_before, self._ends = self._ends, {}
        for its_log in tuple(self._unflushed):
            await asyncio.sleep(0)
            is_flushed = its_log.recovery_point >= its_log.end_offset
            if is_flushed or its_log.failure is not None or self._replicas.partition_of_log(its_log) is None:
                del self._unflushed[its_log]
                continue
            end_offset = self._ends[its_log] = its_log.end_offset
            if ends_before.get(its_log) == end_offset:
                try:
                    its_log.write_producer_snapshot()
                except OSError as error:
                    its_log.fail_unless_transient(error)
                else:
                    await self._flushed(its_log)

    async def _flushed(self, its_log: Log) -> None:
        ended = asyncio.Event()
        self._flusher.call_when_durable([its_log], ended.set)
        await ended.wait()

    async def look_for_room(self) -> None:
        """Check whether full disks have free space again, and create the partitions that could not be created for lack
        of space.
        """
        self._logs.full_disks.check_full_disks()
        self._make_missing()

    async def checkpoint(self) -> None:
        """Write the checkpoints: recovery points, log start offsets and high watermarks."""
        await self._logs.checkpoint(self.high_watermark)

    async def expire_producers(self) -> None:
        """Remove the state of producers without a batch for producer.id.expiration.ms."""
        async for partition in self._partitions():
            partition.log.producers.expire_producers(self._environment.wall_ms())

    def high_watermark(self, key: TopicPartition) -> int | None:
        """The high watermark of a partition; None if this broker does not serve it."""
        partition = self._replicas.get(*key)
        return None if partition is None else partition.high_watermark

    async def _partitions(self) -> AsyncIterator[Partition]:
        """Iterate over the partitions. After every few of them other callbacks of the event loop run, which may remove
        partitions: these are left out.
        """
        for number, partition in enumerate(tuple(self._replicas)):
            if partition in self._replicas:
                yield partition
            if number % PARTITIONS_AT_ONCE == PARTITIONS_AT_ONCE - 1:
                await asyncio.sleep(0)
