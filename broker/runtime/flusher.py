"""Group commit: executor threads sync logs, one sync at a time for each log. Each sync serves all callers that wait for
it.

The leader epoch checkpoint is written soon after each change, for the next process and for readers of the files; no
reply waits for that. No reply waits for a write-back either: it keeps the dirty part of the page cache small, so that
writes need not wait for the disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.tasks import Spawn
from moldau.storage.files.open_files import OpenFile
from moldau.storage.log.flush_work import FlushWork
from moldau.storage.log.log import Log

POSTPONED_MS: Final = 100
"""The time (ms) after which a flush is tried again if there was no file descriptor for it."""


class Flusher:
    """Makes logs durable. A caller that arrives while a log is being synced waits for the next sync, because only that
    one covers its records.
    """

    def __init__(
        self, environment: Environment, spawn: Spawn, flushed: Callable[[Log], None] = lambda log: None
    ) -> None:
        self._environment = environment
        self._spawn = spawn
        self._flushed = flushed
        self._waiting: dict[Log, list[Callable[[], None]]] = {}
        """The logs that are being synced, each with the callbacks that wait for its next sync."""
        self._to_write_back: dict[Log, OpenFile] = {}
        self._writing_back: Log | None = None
        self._writes_back = False
        self._epochs_to_write: dict[Log, None] = {}
        self._writes_epochs = False
        self._ends: dict[Log, asyncio.Future[None]] = {}
        """For each log, the future that completes when its flush in progress ends. A log has one only if a truncation
        waits.
        """
        self._idle: asyncio.Future[None] | None = None
        self.write_back_count = 0
        self.sync_count = 0
        self.sync_ms = 0
        """The total duration of all syncs (ms)."""

    def call_when_durable(self, logs: list[Log], done: Callable[[], None]) -> None:
        """Call `done` when each of `logs` has failed (`Log.failure`) or has made all its current records durable."""
        left = len(logs)

        def one_done() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                done()

        for log in logs:
            self._request(log, one_done)

    def flush(self, log: Log) -> None:
        """Make a log durable soon, without a callback."""
        self._request(log, lambda: None)

    async def wait_for_flushes(self) -> None:
        """Wait for all flushes in progress. Further write-backs and epoch checkpoints are not begun.

        Closing a log syncs it again, and writes the same checkpoint files. A flush that ended later would replace those
        files by older ones.
        """
        self._to_write_back.clear()
        self._epochs_to_write.clear()  # Closing a log writes them.
        while self._waiting or self._writes_back or self._writes_epochs:
            self._idle = asyncio.get_running_loop().create_future()
            await self._idle

    async def wait_for_flush(self, log: Log) -> None:
        """Wait until no flush of a log is in progress."""
        while log.flush_in_flight is not None:
            await self._ends.setdefault(log, asyncio.get_running_loop().create_future())

    def forget_log(self, log: Log) -> None:
        """Forget a log that is about to be deleted: it need not be durable. The callbacks that wait for it are called
        now.
        """
        self._to_write_back.pop(log, None)
        self._epochs_to_write.pop(log, None)
        if self._writing_back is log:
            self._writing_back = None
        for callback in self._waiting.pop(log, ()):
            callback()

    def write_back(self, log: Log) -> None:
        """Write the dirty pages of the log's active segment to the disk; logs are written back one after the other.
        After an error the log has failed, as after a failed flush, because the kernel has dropped the pages.
        """
        self._to_write_back[log] = log.active.begin_write_back()
        if not self._writes_back:
            self._writes_back = True
            self._spawn(self._write_back())

    def write_epochs(self, log: Log) -> None:
        """Write the leader epoch checkpoint of a log whose epochs have changed; logs are written one after the
        other.
        """
        self._epochs_to_write[log] = None
        if not self._writes_epochs:
            self._writes_epochs = True
            self._spawn(self._write_epochs())

    def _request(self, log: Log, done: Callable[[], None]) -> None:
        waiting = self._waiting.get(log)
        if waiting is not None:
            waiting.append(done)
            return
        self._waiting[log] = [done]
        self._spawn(self._sync(log))

    async def _write_back(self) -> None:
        """Write back the files that wait, one at a time, so that threads stay free for syncs and for reads from the
        disk.
        """
        while self._to_write_back:
            log = next(iter(self._to_write_back))
            open_file = self._to_write_back.pop(log)
            self._writing_back = log
            try:
                await self._environment.offload(open_file.file.sync)
            except OSError as error:
                if self._writing_back is log:
                    log.fail_log(error)
            self._writing_back = None
            self.write_back_count += 1
        self._writes_back = False
        self._ended()

    async def _write_epochs(self) -> None:
        """Write the epoch checkpoints that wait, one at a time, so that threads stay free for syncs and for reads from
        the disk.
        """
        while self._epochs_to_write:
            log = next(iter(self._epochs_to_write))
            del self._epochs_to_write[log]
            waiting = self._waiting.get(log)
            if waiting is not None:
                # The flush under way may have collected the epochs before they changed: the next one writes these.
                waiting.append(lambda: None)
                continue
            work = log.pending_epoch_write()
            if work is None:
                continue
            self._waiting[log] = []
            await self._run(log, work)
            if log not in self._waiting:
                continue  # The log was deleted meanwhile.
            if work.is_postponed:
                self._epochs_to_write[log] = None
            self._spawn(self._sync(log))
            if work.is_postponed:
                await asyncio.sleep(POSTPONED_MS / 1000)
        self._writes_epochs = False
        self._ended()

    async def _run(self, log: Log, work: FlushWork) -> None:
        try:
            await self._environment.offload(work.sync_files)
        except OSError as error:
            log.fail_flush(error)
        else:
            log.finish_flush(work, self._environment.wall_ms())
            self._flushed(log)
        finally:
            ended = self._ends.pop(log, None)
            if ended is not None and not ended.done():
                ended.set_result(None)

    async def _sync(self, log: Log) -> None:
        while callbacks := self._waiting.get(log):
            self._waiting[log] = []
            work = log.pending_flush()
            if work is not None:
                began_ms = self._environment.monotonic_ms()
                await self._run(log, work)
                self.sync_count += 1
                self.sync_ms += self._environment.monotonic_ms() - began_ms
                if work.is_postponed and (waiting := self._waiting.get(log)) is not None:
                    waiting[:0] = callbacks
                    await asyncio.sleep(POSTPONED_MS / 1000)
                    continue
            for callback in callbacks:
                callback()
        self._waiting.pop(log, None)
        self._ended()

    def _ended(self) -> None:
        if self._idle is not None and not (
            self._waiting or self._writes_back or self._writes_epochs or self._idle.done()
        ):
            self._idle.set_result(None)
