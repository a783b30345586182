"""A process with the log cleaner and the log eraser of a broker, and two logs: one that is led, and a copy of it.

Nothing here is a stand-in but the network: the copy takes what a fetch of the led log finds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any, Final, cast

from moldau.broker.config.loading import checked_config
from moldau.broker.metadata.cluster_view import DynamicConfig
from moldau.broker.replicas.file_removal import FileRemoval
from moldau.broker.replicas.log_checkpoints import LogCheckpoints
from moldau.broker.replicas.log_cleaner import LogCleaner
from moldau.broker.replicas.log_eraser import RemoteErasing
from moldau.broker.replicas.replicas import Replicas
from moldau.broker.runtime.flusher import Flusher
from moldau.broker.runtime.tasks import Tasks
from moldau.broker.runtime.worker import RunningWork, Work
from moldau.replication.partition import Partition
from moldau.storage.directory.log_directory import DirectoryCallbacks, LogDirectory
from moldau.storage.erasure.erasing import SegmentErased, serve_erasing
from moldau.storage.files.log_paths import CLEANED_SUFFIX, offset_of_name
from moldau.storage.log.changed_logs import ChangedLogs
from moldau.storage.log.log import Log
from moldau.storage.log.reading import LogRead
from moldau.storage.log.segment_swap import SegmentCleaned
from moldau.storage.log_config import LogConfig
from moldau.testing.simulation.world import SimulatedEnvironment
from tests.simulation.compaction.rules import Violation
from tests.support.node import PROPERTIES

ROOT = "/data"
LED, COPY = "led", "copy"
LEADER_ID = 2
WAITS: Final = 0.15
"""How often the cleaner waits."""
WAIT_S_MAX: Final = 0.3


def wait_s(random: Random) -> float:
    """Mostly 0."""
    return random.random() * WAIT_S_MAX if random.random() < WAITS else 0.0


class WatchedWork:
    """A round of cleaning, of which each finished segment is looked at before the cleaner swaps it. Some of them wait
    for the event loop, so that the log changes meanwhile."""

    def __init__(
        self,
        environment: SimulatedEnvironment,
        work: RunningWork[object],
        waits: Random,
        on_cleaned: Callable[[], None],
    ) -> None:
        self._environment = environment
        self._work = work
        self._waits = waits
        self._on_cleaned = on_cleaned

    async def next_event(self, sent: object = None, /) -> object:
        event = await self._work.next_event(sent)
        segment = event.cleaned if isinstance(event, SegmentErased) else event
        if isinstance(segment, SegmentCleaned):
            names = self._environment.fs.list_directory(segment.directory)
            cleaned = [name for name in names if name.endswith(CLEANED_SUFFIX)]
            if stale := [name for name in cleaned if offset_of_name(name) != segment.base_offset]:
                raise Violation(
                    f"a crash in the swap at {segment.base_offset} would lose it: {stale} are there as well"
                )
            await asyncio.sleep(wait_s(self._waits))
            self._on_cleaned()
        return event

    def close(self) -> None:
        self._work.close()


class WatchedEnvironment:
    """That of a broker. No round begins beside what another one has left, unless one has failed."""

    def __init__(self, environment: SimulatedEnvironment, waits: Random) -> None:
        self._environment = environment
        self._waits = waits
        self.has_failed: Callable[[], bool] = lambda: False
        self.on_cleaned: Callable[[], None] = lambda: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)

    def in_process(self, work: Work[Any]) -> WatchedWork:
        if work is serve_erasing:
            return WatchedWork(self._environment, self._environment.in_process(work), self._waits, self.on_cleaned)
        assert isinstance(work, partial)
        names = self._environment.fs.list_directory(work.keywords["request"].directory)
        if (stale := [name for name in names if name.endswith(CLEANED_SUFFIX)]) and not self.has_failed():
            raise Violation(f"an earlier round has left {stale}")
        return WatchedWork(self._environment, self._environment.in_process(work), self._waits, self.on_cleaned)


class Process:
    """One life of the broker."""

    def __init__(
        self, environment: SimulatedEnvironment, config: LogConfig, properties: Mapping[str, str], waits: Random
    ) -> None:
        """`waits` says for how long the cleaner waits for the disk and the event loop."""
        self.environment = environment
        self._waits = waits
        self.on_wait: Callable[[], None] = lambda: None
        """Called while the cleaner waits until a log is durable."""
        self.on_cleaned: Callable[[], None] = lambda: None
        """Called before a cleaned segment is put in the place of others."""
        changes = (ChangedLogs(), ChangedLogs())
        reports = DirectoryCallbacks(changed_logs=changes)
        self.directory = LogDirectory.open(environment.fs, ROOT, lambda _: None, environment.boot_id(), reports)
        self.replicas = Replicas()
        self.led = self._load(LED, config)
        self.copy = self._load(COPY, config)
        self.tasks = Tasks(environment.halt)
        self.flusher = Flusher(environment, self.tasks.spawn, self.replicas.on_flushed)
        self.checkpoints = LogCheckpoints(environment, lambda: (self.directory,))
        self.removal = FileRemoval(environment, self.tasks.spawn)
        watched = WatchedEnvironment(environment, waits)
        watched.has_failed = lambda: self.cleaner.totals.failures > 0
        watched.on_cleaned = lambda: self.on_cleaned()
        self.settings = DynamicConfig(checked_config(PROPERTIES | dict(properties)))
        self.cleaner = LogCleaner(
            self.settings,
            cast("Any", watched),
            self.tasks.spawn,
            self.replicas,
            changes,
            self.flusher,
            self.removal,
            self._write_checkpoints,
            (None, self._remote_erasing()),
        )

    def _remote_erasing(self) -> RemoteErasing | None:
        """What carries out erase orders in remote storage."""
        return None

    async def _write_checkpoints(self) -> bool:
        is_durable = await self.checkpoints.write()
        if (delay_s := wait_s(self._waits)) > 0:
            await asyncio.sleep(delay_s)
            self.on_wait()
        return is_durable

    def _load(self, topic: str, config: LogConfig) -> Partition:
        log = self.directory.load_log(topic, 0, config, self.environment.wall_ms(), lambda _: None)
        known = self.directory.high_watermarks.get((topic, 0), 0)
        high_watermark = min(max(known, log.log_start_offset), log.end_offset)
        partition = Partition(topic, topic.encode().ljust(16), 0, log, high_watermark)
        partition.become_follower(LEADER_ID, 0)  # as such its high watermark is that which it is told
        self.replicas.add(partition)
        return partition

    @property
    def partitions(self) -> tuple[Partition, Partition]:
        return self.led, self.copy

    # What a broker does with its logs

    async def flush(self, log: Log) -> None:
        durable = asyncio.Event()
        self.flusher.call_when_durable([log], durable.set)
        await durable.wait()

    async def checkpoint(self) -> None:
        await self.checkpoints.write({(each.topic, 0): each.high_watermark for each in self.partitions}.get)

    async def truncate(self, partition: Partition, offset: int, *, is_emptied: bool = False) -> None:
        """Make an offset the end of a log, durably; if it is emptied, its start as well."""
        log, now_ms = partition.log, self.environment.wall_ms()
        log.lower_recovery_point(offset, empties=is_emptied)
        await self.checkpoints.write()
        if is_emptied:
            log.truncate_fully_and_start_at(offset, now_ms)
            partition.high_watermark = offset
        else:
            log.truncate_to(offset, now_ms)
            partition.high_watermark = min(partition.high_watermark, log.end_offset)
        partition.adapt_to_truncation()
        await self.flush(log)

    def retain(self, partition: Partition) -> None:
        paths = partition.log.delete_old_segments(self.environment.wall_ms(), partition.high_watermark)
        self.removal.remove_later(paths, partition.log.config.file_delete_delay_ms)

    async def fetch(self, size: int) -> None:
        """The copy takes what comes next in the led log; behind its beginning it begins anew there."""
        led, copy = self.led.log, self.copy.log
        if copy.end_offset < led.log_start_offset:
            await self.truncate(self.copy, led.log_start_offset, is_emptied=True)
        read = led.read(copy.end_offset, size, end_offset=led.end_offset, at_least_one=True)
        if isinstance(read, LogRead) and read.slice is not None:
            result = copy.append_as_follower(read.slice.read(), led.epochs.latest_epoch, self.environment.wall_ms())
            assert result.error == 0, result
        if led.log_start_offset > copy.log_start_offset:
            copy.advance_log_start(min(led.log_start_offset, copy.end_offset), copy.end_offset)
        self.copy.apply_leader_high_watermark(min(self.led.high_watermark, copy.end_offset))

    async def stop(self) -> None:
        """As on SIGTERM."""
        await self.flusher.wait_for_flushes()
        await self.tasks.stop()
        await self.checkpoints.finish()
        high_watermarks = {(each.topic, 0): each.high_watermark for each in self.partitions}
        self.directory.close(self.environment.wall_ms(), 1, high_watermarks.get)
