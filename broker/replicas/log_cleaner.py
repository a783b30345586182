"""The log cleaner: compacts the logs of topics with cleanup.policy=compact, the one with the largest share of dirty
bytes first.

The event loop chooses the log, and swaps cleaned segments in. A separate process reads and writes the segments; it
exists only while a log is cleaned.

KIP-58: min.compaction.lag.ms. KIP-354: max.compaction.lag.ms. KIP-534: the delete horizon of tombstones.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Protocol

from moldau.broker.config.config import Config
from moldau.broker.metadata.cluster_view import DynamicConfig
from moldau.broker.replicas.file_removal import FileRemoval
from moldau.broker.replicas.log_eraser import LogEraser, RemoteErasing
from moldau.broker.replicas.log_rewriting import IoThrottle, LogRewriting
from moldau.broker.replicas.replicas import Replicas
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.flusher import Flusher
from moldau.broker.runtime.tasks import Spawn
from moldau.protocol.compression import RecordSizeExceeded
from moldau.protocol.late_dataclass import dataclass
from moldau.protocol.primitives import MalformedMessage
from moldau.replication.partition import Partition
from moldau.storage.compaction.offset_map import SALT_SIZE
from moldau.storage.compaction.request import (
    BytesProcessed,
    CleanablePart,
    CleanerLimits,
    CleaningDone,
    CleaningRequest,
    LogChanged,
    cleanable_part,
    cleaning_request,
    dirtiest_log,
)
from moldau.storage.log.changed_logs import ChangedLogs
from moldau.storage.log.log import Log
from moldau.storage.log.segment_swap import SegmentCleaned, discard_cleaned
from moldau.storage.log_config import INT64_MAX

log = logging.getLogger("moldau.cleaner")

LOGS_AT_ONCE: Final = 100
"""The number of logs that are examined before other callbacks of the event loop run."""


@dataclass(slots=True)
class CleanerTotals:
    """Totals of the cleaner since the start of the process, and what its last check found in the logs."""

    last_run_ms: int = 0
    """The time (ms, monotonic clock) at which the cleaner last searched for a log to clean."""
    dirty_share_max: float = 0.0
    """The largest share of dirty bytes of a log, 0 to 1."""
    compaction_delay_ms_max: int = 0
    """The time (ms) by which the most overdue log has exceeded its max.compaction.lag.ms."""
    clean_time_ms_max: int = 0
    """The duration (ms) of the slowest cleaning of a log."""
    bytes_read: int = 0
    bytes_written: int = 0
    buffer_share_max: float = 0.0
    """The largest share of the offset map that was in use, 0 to 1."""
    logs_cleaned: int = 0
    failures: int = 0
    """The number of cleanings that ended with an OSError, either of the disk or because the worker process ended
    early.
    """


class RemoteTier(Protocol):
    """The part of tiered storage that the log cleaner uses (decision 14)."""

    def tombstones_end_offset(self, partition: Partition) -> int:
        """The offset before which the cleaner may remove tombstones and transaction markers from the local log; those
        at or past it stay.
        """

    def is_due(self, partition: Partition) -> bool:
        """Whether this broker should clean remote segments of the partition now."""

    async def clean(self, partition: Partition, limits: CleanerLimits) -> bool:
        """Run one pass over the remote segments of the partition. Returns whether it ended without an error."""


class LogCleaner:
    """Chooses logs and cleans them, `log.cleaner.threads` at a time; the setting may change at any time. Its methods
    are called on the event loop.

    A log whose batches are damaged is marked as uncleanable until the broker restarts; other logs are still cleaned.
    """

    def __init__(
        self,
        settings: DynamicConfig,
        environment: Environment,
        spawn: Spawn,
        replicas: Replicas,
        changes: tuple[ChangedLogs, ChangedLogs],
        flusher: Flusher,
        removal: FileRemoval,
        checkpoint: Callable[[], Awaitable[bool]],
        remote: tuple[RemoteTier | None, RemoteErasing | None] = (None, None),
    ) -> None:
        """`changes`: two trackers of logs that changed, one for the cleaner and one for the eraser. `checkpoint` writes
        the checkpoints of all directories, and returns whether all of them are durable. `remote`: cleans remote
        segments, and carries out erase orders in remote segments; both are None if no log is tiered.
        """
        self._settings = settings
        self._environment = environment
        self._spawn = spawn
        self._replicas = replicas
        self._changes, to_erase = changes
        self._candidates: dict[Log, None] = {}
        """The compacted logs that had dirty segments at the last check, or changed since."""
        self.rewriting = LogRewriting(flusher, checkpoint)
        self._remote, orders = remote
        self.eraser = LogEraser(settings, environment, spawn, replicas, to_erase, self.rewriting, orders)
        """Carries out the erase orders independently of the cleaner, also with log.cleaner.enable=false."""
        self._removal = removal
        self._checkpoint = checkpoint
        self._running = 0
        self.uncleanable: dict[Log, str] = {}
        """The logs that cannot be cleaned, each with the reason."""
        self._record_limits: dict[Log, int] = {}
        """For each log that is uncleanable because a record is too large: the limit (bytes,
        `max.decompressed.message.bytes`) that the record exceeded.
        """
        self.totals = CleanerTotals()

    def begin(self) -> None:
        """Start the eraser, and the cleaner if log.cleaner.enable is set."""
        self.eraser.begin()
        if self._settings.config.flag("log.cleaner.enable"):
            self._settings.subscribe(self._start_missing)

    def _start_missing(self, config: Config) -> None:
        while self._running < config.integer("log.cleaner.threads"):
            self._running += 1
            self._spawn(self._run(self._running), f"log-cleaner-{self._running}")

    async def _run(self, number: int) -> None:
        """Clean one log after the other in the task `number` (from 1), until log.cleaner.threads is less than
        `number`.
        """
        while number <= self._settings.config.integer("log.cleaner.threads"):
            if not await self._clean_next():
                await asyncio.sleep(self._settings.config.integer("log.cleaner.backoff.ms") / 1000)
        self._running -= 1

    async def _clean_next(self) -> bool:
        """Clean the log with the largest share of dirty bytes, and then its remote segments.

        If no log is dirty enough, clean the remote segments of another log. Returns whether something was cleaned
        without an error.
        """
        found = await self._next_log()
        if found is None:
            wanted = None if self._remote is None else next(filter(self._wants_remote, tuple(self._replicas)), None)
            return wanted is not None and await self._clean_remote(wanted)
        partition, part = found
        if not await self._clean_local(partition, part):
            return False
        if self._wants_remote(partition):
            await self._clean_remote(partition)
        return True

    def _wants_remote(self, partition: Partition) -> bool:
        is_free = self._is_served(partition) and partition.log not in self.rewriting.in_progress
        return is_free and self._remote is not None and self._remote.is_due(partition)

    async def _clean_remote(self, partition: Partition) -> bool:
        assert self._remote is not None
        self.rewriting.in_progress[partition.log] = None
        try:
            return await self._remote.clean(partition, self._limits())
        finally:
            del self.rewriting.in_progress[partition.log]

    async def _clean_local(self, partition: Partition, part: CleanablePart) -> bool:
        """Clean the local part of a log. Returns whether that ended without an error."""
        self.rewriting.in_progress[partition.log] = None
        try:
            await self._clean(partition, part)
        except LogChanged:
            return False
        except RecordSizeExceeded as exceeded:
            self._mark_uncleanable(partition.log, str(exceeded))
            self._record_limits[partition.log] = partition.log.config.expanded_record_bytes_max
            return False
        except MalformedMessage as malformed:
            self._mark_uncleanable(partition.log, str(malformed))
            return False
        except OSError as error:
            if self._is_served(partition):
                self._refused(partition.log, error)
            return False
        finally:
            del self.rewriting.in_progress[partition.log]
        return True

    def _is_served(self, partition: Partition) -> bool:
        """Whether this broker still has a replica of the partition, and its log has not failed."""
        return partition in self._replicas and partition.log.failure is None

    # Choice of a log

    async def _next_log(self) -> tuple[Partition, CleanablePart] | None:
        parts = []
        self._candidates |= {each: None for each in self._changes.take_logs() if each.config.is_compacted}
        for gone in [each for each in self.uncleanable if self._replicas.partition_of_log(each) is None]:
            del self.uncleanable[gone]
            self._record_limits.pop(gone, None)
        for number, its_log in enumerate(tuple(self._candidates)):
            if number % LOGS_AT_ONCE == LOGS_AT_ONCE - 1:
                await asyncio.sleep(0)
            partition = self._replicas.partition_of_log(its_log)
            if partition is None or not its_log.config.is_compacted or its_log.failure is not None:
                self._candidates.pop(its_log, None)
            elif (part := self._cleanable(partition)) is None:
                continue
            elif part.first_dirty_offset >= its_log.active.base_offset:
                self._candidates.pop(its_log, None)  # Until it changes, there is nothing to clean.
            else:
                parts.append(((partition, part), part, its_log.config.min_cleanable_dirty_ratio))
        totals = self.totals
        totals.last_run_ms = self._environment.monotonic_ms()
        totals.dirty_share_max = max((part.dirty_ratio for _, part, _ in parts), default=0.0)
        totals.compaction_delay_ms_max = max((part.compaction_overdue_ms for _, part, _ in parts), default=0)
        return dirtiest_log(parts)

    def _cleanable(self, partition: Partition) -> CleanablePart | None:
        """The cleanable part of a partition's compacted log; None if it must not be cleaned now."""
        its_log = partition.log
        if its_log in self.rewriting.in_progress or (
            its_log in self.uncleanable and not self._is_limit_changed(its_log)
        ):
            return None
        try:
            now_ms = self._environment.wall_ms()
            part = cleanable_part(its_log, its_log.first_dirty_offset, partition.last_stable_offset, now_ms)
        except MalformedMessage as malformed:
            self._mark_uncleanable(its_log, str(malformed))
        except OSError as error:
            self._refused(its_log, error)
        else:
            if part.is_checkpoint_reset:
                its_log.first_dirty_offset = part.first_dirty_offset
                its_log.note_change()
            return part
        return None

    def _is_limit_changed(self, its_log: Log) -> bool:
        """Whether a log that is uncleanable because of `max.decompressed.message.bytes` has another limit now. If so,
        the log counts as cleanable again.
        """
        limit = self._record_limits.get(its_log)
        if limit is None or limit == its_log.config.expanded_record_bytes_max:
            return False
        del self._record_limits[its_log], self.uncleanable[its_log]
        return True

    # Cleaning one log

    async def _clean(self, partition: Partition, part: CleanablePart) -> None:
        """Clean a log once. Raises `LogChanged`, `MalformedMessage` and OSError. After an error the log is whole: each
        segment is the old one, or the cleaned one that was swapped in.
        """
        began_ms, its_log = self._environment.monotonic_ms(), partition.log
        await self._environment.offload(import_cleaning)
        await self.rewriting.make_durable(its_log, part.first_uncleanable_offset)
        now_ms, salt = self._environment.wall_ms(), self._environment.entropy(SALT_SIZE)
        # During the flush a truncation or retention may have removed segments of the request.
        present = cleanable_part(its_log, its_log.first_dirty_offset, partition.last_stable_offset, now_ms)
        if present.first_dirty_offset != part.first_dirty_offset or not present.cleanable_bytes:
            raise LogChanged
        part = present._replace(
            first_uncleanable_offset=min(present.first_uncleanable_offset, part.first_uncleanable_offset)
        )
        tombstones_end = INT64_MAX if self._remote is None else self._remote.tombstones_end_offset(partition)
        request = cleaning_request(its_log, part, self._limits(), salt, now_ms, tombstones_end)
        throttle = IoThrottle(self._settings, self._environment)
        from moldau.storage.compaction.cleaning import clean_segments

        work = self._environment.in_process(partial(clean_segments, request=request))
        with contextlib.closing(work):
            while (event := await work.next_event()) is not None:
                if not self._is_served(partition):
                    raise LogChanged
                if isinstance(event, BytesProcessed):
                    self.totals.bytes_read += event.bytes_read
                    self.totals.bytes_written += event.bytes_written
                    await throttle.pace(event)
                elif isinstance(event, SegmentCleaned):
                    await self._swap(partition, event)
                else:
                    await self._finish(its_log, request, event, began_ms)

    def _limits(self) -> CleanerLimits:
        """The limits of one cleaner task: its share of the memory that the settings give to all cleaners."""
        config = self._settings.config
        cleaners = max(1, config.integer("log.cleaner.threads"))
        return CleanerLimits(
            dedupe_buffer_size=config.integer("log.cleaner.dedupe.buffer.size") // cleaners,
            io_buffer_size=max(1, config.integer("log.cleaner.io.buffer.size") // cleaners // 2),
            load_factor=config.real("log.cleaner.io.buffer.load.factor"),
        )

    async def _swap(self, partition: Partition, cleaned: SegmentCleaned) -> None:
        paths = partition.log.swap_cleaned(cleaned, self._environment.wall_ms())
        if paths is None:
            await self._environment.offload(partial(discard_cleaned, self._environment.fs, cleaned))
            raise LogChanged
        self._removal.remove_later(paths, partition.log.config.file_delete_delay_ms)

    async def _finish(self, its_log: Log, request: CleaningRequest, done: CleaningDone, began_ms: int) -> None:
        """Make the names of the swapped segments durable, and note the offset up to which the log is clean."""
        await self.rewriting.flush(its_log)
        if its_log.failure is not None:
            raise LogChanged
        its_log.note_cleaned(done.next_dirty_offset, request.truncation_count)
        await self._checkpoint()
        took_ms, told = self._environment.monotonic_ms() - began_ms, done.statistics
        self.totals.logs_cleaned += 1
        self.totals.clean_time_ms_max = max(self.totals.clean_time_ms_max, took_ms)
        self.totals.buffer_share_max = max(self.totals.buffer_share_max, told.buffer_utilization)
        log.info(
            "cleaned %s up to offset %d in %.1f s: %d of %d bytes and %d of %d records stay",
            its_log.directory,
            done.next_dirty_offset,
            took_ms / 1000,
            told.bytes_written,
            told.bytes_read,
            told.messages_written,
            told.messages_read,
        )

    # Errors

    def _mark_uncleanable(self, its_log: Log, reason: str) -> None:
        self.uncleanable[its_log] = reason
        log.error(
            "%s cannot be cleaned, because a batch is damaged: %s. It is left out until the broker restarts; other"
            " logs are cleaned",
            its_log.directory,
            reason,
        )

    def _refused(self, its_log: Log, error: OSError) -> None:
        """Handle an OSError that ended a cleaning. An error without an errno comes from the worker process, and ENOENT
        from a file that retention deleted: neither fails the log.
        """
        self.totals.failures += 1
        log.error("%s was not cleaned, and is tried again: %s", its_log.directory, error)
        if error.errno is not None and error.errno != errno.ENOENT:
            its_log.fail_unless_transient(error)


def import_cleaning() -> None:
    """Import the modules with which a log is cleaned, and a process for it is started. Many brokers never need them.
    The import takes milliseconds of CPU, for which the event loop must not wait.
    """
    import pickle  # noqa: F401

    import moldau.broker.runtime.worker
    import moldau.storage.compaction.cleaning  # noqa: F401
