"""A coordinator's machine on a stage: its log and its clocks, in the place of the broker's `ShardRunner`.

    event ──▶ step ──▶ append ──▶ deliver replies, perform commands ──▶ report the append ──▶ … ──▶ commit

Every test of a coordinator's machine alone runs it here: those of a stage's requests, the transcripts, the swarms. The
log holds batches as bytes, and every other coordinator loads them as a broker does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from moldau.coordinator.runtime.log_reading import LogReader, RecordReader
from moldau.coordinator.runtime.machine import (
    Appended,
    AppendRefused,
    Committed,
    Effects,
    Loaded,
    Tick,
    TransactionWrite,
    Unloaded,
    Waiter,
)
from moldau.coordinator.runtime.shard import Shard
from moldau.protocol.control_records import end_transaction_marker
from moldau.protocol.errors import ErrorCode
from moldau.protocol.record_builder import Record, build_batch
from tests.support.drawn_steps import Violation

WALL_MS: Final = 1_700_000_000_000
"""The wall clock when the deadlines' clock is at 0."""
TICKS_MAX: Final = 1_000
"""At one moment."""

ShardT = TypeVar("ShardT", bound=Shard[Any, Any, Any])


class Batch(NamedTuple):
    """A batch of the log. `changes` are what its records say, or the end of a transaction that a marker says."""

    base_offset: int
    end_offset: int
    data: bytes
    records: Sequence[Record]
    changes: Sequence[Any]
    transaction: TransactionWrite | None


class MachineStage(ABC, Generic[ShardT]):
    """What a step writes is appended, and committed with the append unless the log `is_held`."""

    now_ms = 0
    """The clock of deadlines."""
    wall_skew_ms = 0
    is_held = False
    """Whether the in-sync replicas lag: nothing that is appended is committed."""
    refusal = ErrorCode.NONE
    """The error with which the log refuses every batch from now on."""

    def __init__(self) -> None:
        self.log: list[Batch] = []
        self.end_offset = self.committed_end_offset = 0
        self.epoch = 0
        """The leader epoch of the partition: the number of coordinators before this one."""
        self.replies: dict[object, Any] = {}
        """The responses that no test has taken yet, by the tokens of their requests."""
        self.last_reply: Any = None
        self.token = 0
        """That of the last waiter."""
        self.commands: list[Any] = []
        self.notes: list[str] = []
        self.shard = self.new_shard(0)

    # Defined by each machine

    @abstractmethod
    def new_shard(self, committed_end_offset: int) -> ShardT:
        """The machine of a coordinator that has loaded nothing, and is told this high watermark."""

    @abstractmethod
    def new_reader(self) -> RecordReader[Any]: ...

    @abstractmethod
    def changes_of(self, effects: Effects) -> Sequence[Any]:
        """What the batch of a step says."""

    # Requests

    def waiter(self, version: int = 0) -> Waiter:
        self.token += 1
        return Waiter(self.token, version)

    def ask(self, event: Any) -> Any:
        """The response to a request; None while it waits."""
        self.step(event)
        return self.replies.pop(event.waiter.token, None)

    # Events and their effects

    @property
    def wall_ms(self) -> int:
        return WALL_MS + self.now_ms + self.wall_skew_ms

    def step(self, event: Any) -> None:
        """Step the machine with an event, and do all that follows from it, in the order of `ShardRunner`."""
        effects = self._stepped(event)
        while effects.has_batch:
            report = self._append(effects, event)
            if self.process_ends():
                self.take_over(is_told=False)
                return
            self._act(effects)
            effects = self._stepped(report)
        self._act(effects)
        self.settled(event)

    def _stepped(self, event: Any) -> Effects:
        reply = self.shard.reply_at_once(event, self.now_ms, self.wall_ms)
        effects = self.shard.step(event, self.now_ms, self.wall_ms) if reply is None else Effects([], [reply], [])
        self.stepped(event, effects)
        return effects

    def _append(self, effects: Effects, cause: object) -> Appended | AppendRefused:
        error = self.append_error(effects)
        if error is not ErrorCode.NONE:
            self.refused(error)
            return AppendRefused(error)
        base_offset = self.end_offset
        changes = self.changes_of(effects)
        self.end_offset += len(effects.records) or 1
        data = batch_of(effects, base_offset, self.wall_ms)
        batch = Batch(base_offset, self.end_offset, data, effects.records, changes, effects.transaction)
        self.log.append(batch)
        self.appended(batch, cause)
        if self.commits_with_append():
            self._commit_to(self.end_offset)
        return Appended(self.end_offset, self.committed_end_offset)

    def _act(self, effects: Effects) -> None:
        for note in effects.notes:
            self.noted(note)
        for token, response in effects.replies:
            self.deliver(token, response)
        for command in effects.commands:
            self.perform(command)

    def deliver(self, token: Any, response: object) -> None:
        assert token not in self.replies, f"{token} is answered twice"
        self.replies[token] = self.last_reply = response

    def perform(self, command: Any) -> None:
        self.commands.append(command)

    def noted(self, note: str) -> None:
        self.notes.append(note)

    # What a stage may decide, and watch

    def append_error(self, effects: Effects) -> ErrorCode:
        """The error with which the log refuses a batch."""
        return self.refusal

    def commits_with_append(self) -> bool:
        return not self.is_held

    def process_ends(self) -> bool:
        """Whether the process ends between an append and what follows from it."""
        return False

    def stepped(self, event: Any, effects: Effects) -> None:
        """Before any record of the step is in the log, and before any reply is sent."""

    def appended(self, batch: Batch, cause: object) -> None:
        """`cause` is the event that the step was about."""

    def refused(self, error: ErrorCode) -> None: ...

    def committed(self, batch: Batch) -> None:
        """Before the machine is told so."""

    def settled(self, event: Any) -> None:
        """A step is over, with all that follows from it."""

    def replaced(self, *, is_told: bool) -> None:
        """This coordinator ends. If `is_told`, it has answered all requests."""

    def cut(self) -> None:
        """The log lost what the next coordinator does not have."""

    def loaded(self) -> None:
        """The next coordinator has replayed the log, and all of it is committed."""

    # The log

    @property
    def records(self) -> list[Record]:
        return [record for batch in self.log for record in batch.records]

    def uncommitted(self) -> list[Batch]:
        count = 0
        while count < len(self.log) and self.log[-1 - count].end_offset > self.committed_end_offset:
            count += 1
        return self.log[len(self.log) - count :]

    def store(self, *records: Record) -> None:
        """Append records that this coordinator has not written: the next one loads them."""
        report = self._append(Effects([*records], [], []), None)
        assert isinstance(report, Appended)

    def commit_log(self, end_offset: int | None = None) -> None:
        """Commit whole batches up to an offset; by default all."""
        if self._commit_to(self.end_offset if end_offset is None else end_offset):
            self.step(Committed(self.committed_end_offset))

    def _commit_to(self, end_offset: int) -> bool:
        if end_offset <= self.committed_end_offset:
            return False
        batches = [batch for batch in self.uncommitted() if batch.end_offset <= end_offset]
        self.committed_end_offset = end_offset
        for batch in batches:
            self.committed(batch)
        return True

    def release(self) -> None:
        """The in-sync replicas catch up."""
        self.is_held = False
        self.commit_log()

    # Time

    def wait(self, ms: int) -> None:
        """Deadlines come up on the way, each at its time. Raises `Violation` if one is due without end."""
        end_ms, ticks = self.now_ms + ms, 0
        while (deadline_ms := self.shard.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            ticks = 0 if deadline_ms > self.now_ms else ticks + 1
            if ticks > TICKS_MAX:
                raise Violation("a deadline is due again and again")
            self.now_ms = max(self.now_ms, deadline_ms)
            self.tick()
        self.now_ms = end_ms

    def tick(self) -> None:
        """A deadline is due."""
        self.step(Tick())

    # Which broker coordinates

    def take_over(self, *, is_told: bool = True, end_offset: int | None = None) -> None:
        """Another broker leads the partition, with the log up to here, by default what is committed, and loads it."""
        if is_told:
            effects = self._stepped(Unloaded())
            assert not effects.has_batch, "a coordinator that was replaced writes nothing"
            self._act(effects)
        self.replaced(is_told=is_told)
        self.end_offset = self.committed_end_offset if end_offset is None else end_offset
        self.log = [batch for batch in self.log if batch.end_offset <= self.end_offset]
        self.cut()
        self.epoch += 1
        self.shard = self.loaded_shard(self.told_committed())
        self._commit_to(self.end_offset)
        self.loaded()
        for event in self.first_events():
            self.step(event)

    def told_committed(self) -> int:
        """The high watermark that a new leader begins with; it may lag."""
        return self.committed_end_offset

    def first_events(self) -> Sequence[object]:
        """What a coordinator is told when it has replayed the log."""
        return Committed(self.committed_end_offset), Loaded()

    def loaded_shard(self, committed_end_offset: int) -> ShardT:
        """The machine of a coordinator that has replayed the log."""
        shard = self.new_shard(committed_end_offset)
        reader = LogReader(0, self.new_reader())
        for piece in self.pieces():
            for change, end_offset in reader.read(b"".join(batch.data for batch in piece)):
                shard.replay(change, end_offset)
        return shard

    def loaded_copy(self) -> ShardT:
        """Another coordinator, to compare with: it has replayed the log, and is told so."""
        shard = self.loaded_shard(self.end_offset)
        shard.step(Loaded(), self.now_ms, self.wall_ms)
        return shard

    def pieces(self) -> Iterator[Sequence[Batch]]:
        """The log as it is read: some batches at a time."""
        yield self.log


def batch_of(effects: Effects, base_offset: int, wall_ms: int) -> bytes:
    """The bytes that `ShardRunner` appends."""
    if effects.transaction is None:
        return build_batch(effects.records, base_offset=base_offset, base_sequence=0)
    producer_id, producer_epoch, end, _ = effects.transaction
    if end is None:
        return build_batch(
            effects.records,
            base_offset=base_offset,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=0,
            is_transactional=True,
        )
    return end_transaction_marker(
        commits=end.is_commit,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        coordinator_epoch=end.coordinator_epoch,
        timestamp=wall_ms,
        base_offset=base_offset,
    )
