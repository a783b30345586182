"""What happens to logs in the background: retention, flushes by time, checkpoints, expiry of producers, removal."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Final

from broker.config.config import Config
from broker.replicas.file_removal import FileRemoval
from broker.replicas.local_logs import LocalLogs
from broker.replicas.replicas import Replicas
from broker.runtime.environment import Environment
from broker.runtime.flusher import Flusher
from broker.runtime.tasks import Job
from protocol.primitives import MalformedMessage
from replication.partition import Partition
from storage.log_config import INT64_MAX

log = logging.getLogger("moldau.logs")

FLUSH_CHECK_INTERVAL_MS: Final = 1000
SPACE_CHECK_INTERVAL_MS: Final = 1000


class LogJobs:
    """Each job goes through the logs one by one and lets the loop breathe between them."""

    def __init__(
        self,
        config: Config,
        environment: Environment,
        replicas: Replicas,
        logs: LocalLogs,
        flusher: Flusher,
        removal: FileRemoval,
        make_missing: Callable[[], None],
    ) -> None:
        """`make_missing`: tries again to make the partitions for which the disk had no room."""
        self._config = config
        self._environment = environment
        self._replicas = replicas
        self._logs = logs
        self._flusher = flusher
        self._removal = removal
        self._make_missing = make_missing
        self.segments_deleted = 0
        """By retention, since the start."""

    def jobs(self) -> list[Job]:
        config = self._config
        delay_ms = config.integer("log.initial.task.delay.ms")
        return [
            Job("retention", config.integer("log.retention.check.interval.ms"), self.retain, delay_ms),
            Job("flush", FLUSH_CHECK_INTERVAL_MS, self.flush),
            Job("disk-space", SPACE_CHECK_INTERVAL_MS, self.look_for_room),
            Job("checkpoint", config.integer("replica.high.watermark.checkpoint.interval.ms"), self.checkpoint),
            Job("producer-expiry", config.integer("producer.id.expiration.check.interval.ms"), self.expire_producers),
        ]

    async def retain(self) -> None:
        """Give up segments that are too old or too many."""
        async for partition in self._partitions():
            segments_before = len(partition.log.segments)
            try:
                paths = partition.log.delete_old_segments(self._environment.wall_ms(), partition.high_watermark)
            except MalformedMessage as malformed:
                partition.log.damaged(str(malformed))
                continue
            except OSError as error:
                log.error("retention of %s-%d: %s", partition.topic, partition.index, error)
                continue
            self.segments_deleted += max(0, segments_before - len(partition.log.segments))
            if paths:
                log.info("%s-%d begins at offset %d", partition.topic, partition.index, partition.log.log_start_offset)
                self._removal.remove_later(paths, partition.log.config.file_delete_delay_ms)

    async def flush(self) -> None:
        """Sync the logs whose flush.ms has passed."""
        now_ms = self._environment.wall_ms()
        for partition in tuple(self._replicas):
            if partition.log.config.flush_ms < INT64_MAX and partition.log.flush_is_due(now_ms):
                self._flusher.flush(partition.log)

    async def look_for_room(self) -> None:
        """Where a disk was full; and make the partitions for which there was none."""
        self._logs.space.look()
        self._make_missing()

    async def checkpoint(self) -> None:
        await self._logs.checkpoint(self.high_watermarks())

    async def expire_producers(self) -> None:
        """Forget producers that have been silent for producer.id.expiration.ms."""
        async for partition in self._partitions():
            partition.log.producers.expire(self._environment.wall_ms())

    def high_watermarks(self) -> dict[tuple[str, int], int]:
        return {(each.topic, each.index): each.high_watermark for each in self._replicas}

    async def _partitions(self) -> AsyncIterator[Partition]:
        """One by one, with a breath between them, in which partitions may go."""
        for partition in tuple(self._replicas):
            if partition in self._replicas:
                yield partition
            await asyncio.sleep(0)
