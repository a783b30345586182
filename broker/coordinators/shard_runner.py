"""Runs one state machine of a coordinator over one partition of an internal topic.

The runner loads the state machine from the log, passes events to it, appends the records of each step, sends the
replies, and wakes the state machine when a deadline is due. It does not depend on the kind of coordinator.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from typing import Final, Generic, Protocol, TypeVar, cast

from moldau.broker.coordinators.definition import CoordinatorDefinition
from moldau.broker.coordinators.partition_log import CoordinatorLog
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.progress import FIRST_LINE_MS, Progress, log, short_duration_text
from moldau.coordinator.runtime.log_reading import LogReader, Replayable
from moldau.coordinator.runtime.machine import (
    Appended,
    AppendRefused,
    Committed,
    Effects,
    Loaded,
    RuntimeEvent,
    StateMachine,
    Tick,
    Unloaded,
)
from moldau.protocol.control_records import end_transaction_marker
from moldau.protocol.errors import ErrorCode
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_builder import build_batch
from moldau.storage.files.file_slice import FileSlice
from moldau.storage.files.port import TRANSIENT_ERRNOS

CHANGES_AT_ONCE: Final = 1_000
"""The most changes that loading replays before other tasks of the event loop run."""
TICKS_AT_ONCE: Final = 100
RETRY_MS: Final = 1000
BASE_SEQUENCE: Final = 0
"""The base sequence of the batches that coordinators append, as in Apache Kafka.

In a batch of a transaction it makes the log note the producer's epoch. The log does not compare the sequences of
coordinators' batches.
"""

ShardT = TypeVar("ShardT")
RequestT = TypeVar("RequestT")
LoadedT = TypeVar("LoadedT")


class ReplyTaker(Protocol):
    """Takes the reply to a request. The handler of the request puts it into a `Waiter`."""

    def complete(self, response: object) -> None: ...


class RunnerState(Enum):
    LOADING = auto()
    """The log is being read, or loaded records are not committed yet."""
    ACTIVE = auto()
    FAILED = auto()
    """The log could not be read; another replica must lead the partition."""
    CLOSED = auto()
    """Another broker leads the partition, or the partition is deleted."""


REFUSALS: Final = {
    RunnerState.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    RunnerState.ACTIVE: ErrorCode.NONE,
    RunnerState.FAILED: ErrorCode.NOT_COORDINATOR,
    RunnerState.CLOSED: ErrorCode.NOT_COORDINATOR,
}
"""The error with which requests are answered in each state of the runner."""


class ShardRunner(Generic[ShardT, RequestT, LoadedT]):
    """Runs a coordinator's state machine, with one event after the other.

    All effects of an event are carried out before the next event, even if that event arrives meanwhile.
    """

    def __init__(
        self,
        row: CoordinatorDefinition[ShardT, RequestT, LoadedT],
        partition_log: CoordinatorLog,
        environment: Environment,
        loop: asyncio.AbstractEventLoop,
        loading: LoadingProgress,
    ) -> None:
        self.shard = row.new_shard(partition_log.high_watermark, partition_log.leader_epoch)
        """The state machine. Only `submit` changes it, and `prolong_session` while the runner is idle. Other code may
        read it if the state machine allows reads."""
        self.state = RunnerState.LOADING
        # Python's type variables cannot bound one another: the row promises that a ShardT is such a machine.
        self._machine = cast("StateMachine[RequestT, LoadedT]", self.shard)
        self._row = row
        self._log = partition_log
        self.index = partition_log.index
        """The index of the state machine's partition in the internal topic."""
        self._loading = loading
        self._name = f"{row.topic.name}-{partition_log.index}"
        self._notes = logging.getLogger(row.log_name)
        self._environment = environment
        self._loop = loop
        self._events: deque[RequestT | RuntimeEvent] = deque()
        self._is_stepping = False
        self._is_appending = False
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_ms = 0
        self._moved = asyncio.Event()

    @property
    def partition_log(self) -> CoordinatorLog:
        return self._log

    @property
    def refusal(self) -> ErrorCode:
        """The error with which requests must be answered now; NONE if the state machine accepts requests."""
        return REFUSALS[self.state]

    # Life

    async def load(self) -> None:
        """Replay the log of the partition into the state machine, then accept requests."""
        self._loading.note_begun(self._log.index, self._log.end_offset - self._log.start_offset)
        try:
            await self._load()
        finally:
            self._loading.note_ended(self._log.index)

    async def _load(self) -> None:
        """Load the state machine. The log is read and decoded in an executor thread, piece by piece."""
        start_offset = self._log.start_offset
        reader = LogReader(start_offset, self._row.new_reader())
        try:
            while self.state is RunnerState.LOADING and reader.next_offset < self._log.end_offset:
                changes = await self._read_on(reader)
                for index, (change, end_offset) in enumerate(changes):
                    if index % CHANGES_AT_ONCE == 0:
                        await asyncio.sleep(0)
                    self._machine.replay(change, end_offset)
                # Otherwise the garbage collector would stop all threads for tens of milliseconds, many times during the
                # load.
                self._environment.keep_allocated()
                self._loading.note_progress(self._log.index, reader.next_offset - start_offset)
        except (OSError, MalformedMessage) as error:
            if self.state is not RunnerState.LOADING:
                return  # Another broker leads the partition, and this one may have truncated what was being read.
            if isinstance(error, MalformedMessage):
                self._log.report_damage(str(error))
            else:
                self._log.report_failure(error)
            self._notes.error("cannot load %s, another replica has to lead it: %s", self._name, error)
            self.state = RunnerState.FAILED
            return
        self._loading.note_ended(self._log.index)
        if reader.ignored:
            text = "%s: %d records are of types that this version does not know. They stay in the log, without effect"
            self._notes.warning(text, self._name, reader.ignored)
        await self._until_committed(reader.next_offset)
        if self.state is RunnerState.LOADING:
            self.state = RunnerState.ACTIVE
            self._log.watch(self._high_watermark_moved)
            self._high_watermark_moved()
            self.submit(Loaded())

    async def _until_committed(self, end_offset: int) -> None:
        """Wait until all loaded records are committed, because the earlier coordinator may have acknowledged them.

        DIVERGES: Apache Kafka responds earlier, with the offsets below the new leader's high watermark. These may lack
        the offsets that were acknowledged last.
        """
        self._log.watch(self._moved.set)
        while self.state is RunnerState.LOADING and self._log.high_watermark < end_offset:
            self._moved.clear()
            await self._moved.wait()
        self._log.unwatch(self._moved.set)

    async def _read_on(self, reader: LogReader[LoadedT]) -> list[Replayable[LoadedT]]:
        """Read and decode the next changes of the log. The list is empty, after a pause, if the process has no free
        file descriptor.

        Raises OSError if the disk fails, and `MalformedMessage` if a batch is damaged.
        """
        try:
            return await self._read_next(reader)
        except OSError as error:
            if error.errno not in TRANSIENT_ERRNOS:
                raise
        await asyncio.sleep(RETRY_MS / 1000)
        return []

    async def _read_next(self, reader: LogReader[LoadedT]) -> list[Replayable[LoadedT]]:
        piece = self._log.slice_at(reader.next_offset, self._row.load_buffer_size)
        if piece is None:
            raise MalformedMessage(f"nothing to read at offset {reader.next_offset}")
        before = reader.next_offset
        changes = await self._environment.offload(lambda: reader.read(bytes_of(piece)))
        if reader.next_offset == before:
            raise MalformedMessage(f"no complete batch at offset {before}")
        return changes

    def close(self) -> None:
        """Stop the state machine. Clients that wait for a reply are told to look up the new coordinator."""
        if self.state is RunnerState.ACTIVE:
            self._log.unwatch(self._high_watermark_moved)
            self._events.clear()
            self.submit(Unloaded())
        self.state = RunnerState.CLOSED
        self._moved.set()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    # Events and their effects

    def submit(self, event: RequestT | RuntimeEvent) -> None:
        """Pass an event to the state machine, and carry out the effects. Replies are sent through the tokens of the
        waiters, before this returns or later.
        """
        assert self.state is RunnerState.ACTIVE, "requests go to machines that are loaded"
        if self._is_stepping:
            self._events.append(event)
            return
        reply = self._machine.reply_at_once(event, self._environment.monotonic_ms(), self._environment.wall_ms())
        if reply is not None:
            cast(ReplyTaker, reply.token).complete(reply.response)
        else:
            self._events.append(event)
            self._is_stepping = True
            try:
                while self._events:
                    self._step(self._events.popleft())
            finally:
                self._is_stepping = False
        self._arm()

    @property
    def is_idle(self) -> bool:
        """Whether the state machine accepts requests, and is not in the middle of one."""
        return self.state is RunnerState.ACTIVE and not self._is_stepping

    @property
    def is_open(self) -> bool:
        return self.state is RunnerState.ACTIVE

    def report(self, event: RequestT) -> None:
        if self.is_open:
            self.submit(event)

    def _step(self, event: RequestT | RuntimeEvent) -> None:
        now_ms, wall_ms = self._environment.monotonic_ms(), self._environment.wall_ms()
        effects = self._machine.step(event, now_ms, wall_ms)
        while effects.has_batch:
            answer = self._append(effects, wall_ms)
            self._act(effects)
            effects = self._machine.step(answer, now_ms, wall_ms)
        self._act(effects)

    def _append(self, effects: Effects, wall_ms: int) -> Appended | AppendRefused:
        batch = self._batch_of(effects, wall_ms)
        self._is_appending = True
        try:
            error = self._log.append(batch, wall_ms, effects.transaction)
        finally:
            self._is_appending = False
        if error is ErrorCode.NONE:
            return Appended(self._log.end_offset, self._log.high_watermark)
        self._notes.warning("%s refuses %d records: %s", self._name, len(effects.records), error.name)
        return AppendRefused(error)

    def _batch_of(self, effects: Effects, wall_ms: int) -> bytes:
        transaction, codec = effects.transaction, self._row.codec
        if transaction is None:
            return build_batch(effects.records, codec=codec, base_sequence=BASE_SEQUENCE)
        producer_id, producer_epoch, end, _ = transaction
        if end is None:
            return build_batch(
                effects.records,
                codec=codec,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=BASE_SEQUENCE,
                is_transactional=True,
            )
        return end_transaction_marker(
            commits=end.is_commit,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=end.coordinator_epoch,
            timestamp=wall_ms,
        )

    def _act(self, effects: Effects) -> None:
        for note in effects.notes:
            self._notes.info("%s", note)
        for token, response in effects.replies:
            cast(ReplyTaker, token).complete(response)
        for command in effects.commands:
            self._row.perform(command, self)

    def _high_watermark_moved(self) -> None:
        """Report the high watermark to the state machine. During an append this is not needed, because `Appended`
        reports it.
        """
        if self.state is RunnerState.ACTIVE and not self._is_appending:
            self.submit(Committed(self._log.high_watermark))

    def _arm(self) -> None:
        """Set one timer for the state machine's earliest deadline.

        A timer that fires early does no harm, so it is not moved to a later time.
        """
        deadline_ms = self._machine.next_deadline_ms()
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
        now_ms = self._environment.monotonic_ms()  # What becomes due meanwhile is left for the next iteration.
        for _ in range(TICKS_AT_ONCE):
            deadline_ms = self._machine.next_deadline_ms()
            if deadline_ms is None or deadline_ms > now_ms:
                break
            self.submit(Tick())
        self._arm()


def bytes_of(piece: FileSlice) -> bytes:
    return piece.file.pread(piece.size, piece.position)


class LoadingProgress:
    """Logs how far a coordinator has loaded the partitions of its topic. One count of records covers all partitions
    that load at the same time. It begins at 0 again when a partition begins to load while no other does.
    """

    def __init__(self, topic: str, precise_ns: Callable[[], int]) -> None:
        self._topic = topic
        self._precise_ns = precise_ns
        self._progress = Progress(precise_ns)
        self._totals: dict[int, int] = {}
        """The number of records of each partition that is being loaded."""
        self._loaded: dict[int, int] = {}
        self._under_way: set[int] = set()

    def note_begun(self, index: int, records: int) -> None:
        """Note that partition `index`, with this number of records, is about to be loaded."""
        if not self._under_way:
            self._progress = Progress(self._precise_ns)
            self._totals.clear()
            self._loaded.clear()
        self._under_way.add(index)
        self._totals[index] = records
        self._loaded[index] = 0

    def note_progress(self, index: int, records: int) -> None:
        """Note that this number of records of partition `index` is loaded."""
        self._loaded[index] = records
        done, total = sum(self._loaded.values()), sum(self._totals.values())
        self._progress.log_progress(
            done / max(total, 1),
            lambda: f"loading {self._topic}: {done:,} of {total:,} records of {len(self._totals)} partitions",
        )

    def note_ended(self, index: int) -> None:
        """Note that partition `index` is loaded, or that its loading was given up. A second call has no effect."""
        if index not in self._under_way:
            return
        self._under_way.remove(index)
        if not self._under_way and self._progress.duration_ms >= FIRST_LINE_MS:
            took = short_duration_text(self._progress.duration_ms / 1000)
            log.info("loaded %s: %s records in %s", self._topic, f"{sum(self._loaded.values()):,}", took)
