"""Runs one shard: loads it, steps it, appends what it writes, sends what it says, wakes it when it is time."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from enum import Enum, auto
from typing import Final, Protocol, cast

from broker.coordinators.partition_log import GroupLog
from broker.runtime.environment import Environment
from coordinator.group.config import GroupConfig
from coordinator.group.events import Appended, AppendRefused, Committed, Event, Loaded, Tick, Unloaded
from coordinator.group.log_reading import LogReader, Replayable
from coordinator.group.shard import GroupShard
from coordinator.runtime.effects import Effects, Response
from protocol.compression import Codec
from protocol.errors import ErrorCode
from protocol.primitives import MalformedMessage
from protocol.record_builder import build_batch
from storage.files.disk_errors import PASSING
from storage.files.file_slice import FileSlice
from storage.segment.batch_scan import damage_in

log = logging.getLogger("moldau.groups")

CHANGES_AT_ONCE: Final = 1_000
"""Replayed before the loop gets a turn."""
TICKS_AT_ONCE: Final = 100
RETRY_MS: Final = 1000
BASE_SEQUENCE: Final = 0
"""What Apache Kafka's coordinator writes into its batches, which have no producer."""


class Token(Protocol):
    """What the shell puts into a `Waiter`."""

    def complete(self, response: Response) -> None: ...


class RunnerState(Enum):
    """The value is what a request is told."""

    LOADING = auto()
    ACTIVE = auto()
    FAILED = auto()
    """The log could not be read."""
    CLOSED = auto()
    """The partition is another broker's, or gone."""


REFUSALS: Final = {
    RunnerState.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    RunnerState.ACTIVE: ErrorCode.NONE,
    RunnerState.FAILED: ErrorCode.NOT_COORDINATOR,
    RunnerState.CLOSED: ErrorCode.NOT_COORDINATOR,
}
"""What requests are told in each state."""


class ShardRunner:
    """Events are stepped one after the other, each with what follows from it, even if one comes during another."""

    def __init__(
        self,
        group_log: GroupLog,
        config: GroupConfig,
        environment: Environment,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.shard = GroupShard(config, group_log.high_watermark)
        self.state = RunnerState.LOADING
        self._log = group_log
        self._environment = environment
        self._loop = loop
        self._events: deque[Event] = deque()
        self._is_running = False
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_ms = 0
        self._moved = asyncio.Event()

    @property
    def refusal(self) -> ErrorCode:
        """Why the shard takes no requests now, NONE when it does."""
        return REFUSALS[self.state]

    # Life

    async def load(self) -> None:
        """Replay the log, which is read and decoded beside the loop."""
        reader = LogReader(self._log.start_offset)
        count = 0
        try:
            while self.state is RunnerState.LOADING and reader.next_offset < self._log.end_offset:
                changes = await self._read_on(reader)
                for index, (change, end_offset) in enumerate(changes):
                    if index % CHANGES_AT_ONCE == 0:
                        await asyncio.sleep(0)
                    self.shard.replay(change, end_offset)
                count += len(changes)
        except (OSError, MalformedMessage) as error:
            if isinstance(error, MalformedMessage):
                self._log.damaged(str(error))
            else:
                self._log.failed(error)
            log.error("cannot load the groups of __consumer_offsets-%d: %s", self._log.index, error)
            self.state = RunnerState.FAILED
            return
        await self._until_committed(reader.next_offset)
        if self.state is RunnerState.LOADING:
            self.state = RunnerState.ACTIVE
            self._log.watch(self._high_watermark_moved)
            self.submit(Loaded())
            self._high_watermark_moved()
            log.debug("loaded %d records of __consumer_offsets-%d", count, self._log.index)

    async def _until_committed(self, end_offset: int) -> None:
        """Wait until what was loaded is known to be committed, as the coordinator before this one may have said of it.

        DIVERGES: Apache Kafka answers before that, with the offsets that a new leader's high watermark covers already;
        those that were acknowledged last are not among them.
        """
        self._log.watch(self._moved.set)
        while self.state is RunnerState.LOADING and self._log.high_watermark < end_offset:
            self._moved.clear()
            await self._moved.wait()
        self._log.unwatch(self._moved.set)

    async def _read_on(self, reader: LogReader) -> list[Replayable]:
        """The next records; none where there is no file descriptor at the moment. Raises OSError and
        `MalformedMessage`."""
        try:
            return await self._read_next(reader)
        except OSError as error:
            if error.errno not in PASSING:
                raise
        await asyncio.sleep(RETRY_MS / 1000)
        return []

    async def _read_next(self, reader: LogReader) -> list[Replayable]:
        piece = self._log.slice_at(reader.next_offset, self.shard.config.offsets_load_buffer_size)
        if piece is None:
            raise MalformedMessage(f"nothing to read at offset {reader.next_offset}")
        before = reader.next_offset
        changes = await self._environment.offload(lambda: reader.read(sound(bytes_of(piece))))
        if reader.next_offset == before:
            raise MalformedMessage(f"no complete batch at offset {before}")
        return changes

    def close(self) -> None:
        """Drop the shard; whoever waits is sent to look for the new coordinator."""
        if self.state is RunnerState.ACTIVE:
            self._log.unwatch(self._high_watermark_moved)
            self._events.clear()
            self.submit(Unloaded())
        self.state = RunnerState.CLOSED
        self._moved.set()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    # Work

    def submit(self, event: Event) -> None:
        """Let the shard decide about an event; replies come through the tokens, now or later."""
        assert self.state is RunnerState.ACTIVE, "requests go to shards that are loaded"
        self._events.append(event)
        if self._is_running:
            return
        self._is_running = True
        try:
            while self._events:
                self._step(self._events.popleft())
        finally:
            self._is_running = False
        self._arm()

    def _step(self, event: Event) -> None:
        now_ms, wall_ms = self._environment.monotonic_ms(), self._environment.wall_ms()
        effects = self.shard.step(event, now_ms, wall_ms)
        while effects.records:
            answer = self._append(effects, wall_ms)
            self._reply(effects)
            effects = self.shard.step(answer, now_ms, wall_ms)
        self._reply(effects)

    def _append(self, effects: Effects, wall_ms: int) -> Appended | AppendRefused:
        codec = Codec(self.shard.config.offsets_topic_compression_codec)
        batch = build_batch(effects.records, codec=codec, base_sequence=BASE_SEQUENCE)
        error = self._log.append(batch, wall_ms)
        if error is ErrorCode.NONE:
            return Appended(self._log.end_offset)
        log.warning("__consumer_offsets-%d refuses %d records: %s", self._log.index, len(effects.records), error.name)
        return AppendRefused(error)

    def _reply(self, effects: Effects) -> None:
        for note in effects.notes:
            log.info("%s", note)
        for token, response in effects.replies:
            cast(Token, token).complete(response)

    def _high_watermark_moved(self) -> None:
        if self.state is RunnerState.ACTIVE:
            self.submit(Committed(self._log.high_watermark))

    def _arm(self) -> None:
        """One timer for the earliest deadline. It is not moved back: woken too early, the shard does nothing."""
        deadline_ms = self.shard.next_deadline_ms()
        if deadline_ms is None or self.state is not RunnerState.ACTIVE:
            return
        if self._alarm is not None:
            if self._alarm_ms <= deadline_ms:
                return
            self._alarm.cancel()
        self._alarm_ms = deadline_ms
        delay_ms = max(0, deadline_ms - self._environment.monotonic_ms())
        self._alarm = self._loop.call_later(delay_ms / 1000, self._wake)

    def _wake(self) -> None:
        self._alarm = None
        for _ in range(TICKS_AT_ONCE):
            deadline_ms = self.shard.next_deadline_ms()
            if deadline_ms is None or deadline_ms > self._environment.monotonic_ms():
                break
            self.submit(Tick())
        self._arm()


def bytes_of(piece: FileSlice) -> bytes:
    return piece.file.pread(piece.size, piece.position)


def sound(stored: bytes) -> bytes:
    """Stored batches, each with its checksum. Raises `MalformedMessage`."""
    damage = damage_in(stored)
    if damage is not None:
        raise MalformedMessage(damage)
    return stored
