"""A shard of the transaction coordinator without a broker around it: its log, its clocks, the next coordinator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple, Protocol

from moldau.coordinator.runtime.log_reading import LogReader
from moldau.coordinator.runtime.machine import (
    Appended,
    AppendRefused,
    Committed,
    Effects,
    Loaded,
    RuntimeEvent,
    Tick,
    Unloaded,
    Waiter,
)
from moldau.coordinator.transaction.events import SendMarkers, TransactionConfig, TransactionEvent
from moldau.coordinator.transaction.records import TransactionChange, TransactionRecordReader, change_of, record_of
from moldau.coordinator.transaction.shard import TransactionShard
from moldau.protocol.errors import ErrorCode
from moldau.protocol.record_builder import Record, build_batch
from tests.support.drawn_steps import Violation

WALL_MS: Final = 1_700_000_000_000
REFUSALS: Final = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
TICKS_MAX: Final = 1_000
"""At one moment."""


@dataclass(slots=True, eq=False)
class Request:
    """A request, and what it was answered."""

    owner: object
    """What the answer is for."""
    event: TransactionEvent | None = None
    replies: int = 0
    response: object = None


class Stored(NamedTuple):
    """A batch of the log."""

    end_offset: int
    data: bytes
    changes: tuple[TransactionChange, ...]


class Watcher(Protocol):
    """Checks each step."""

    def appended(self, changes: tuple[TransactionChange, ...], cause: TransactionEvent | RuntimeEvent) -> None:
        """`cause` is the event that the step was about."""

    def cut(self, log: list[Stored]) -> None:
        """This is left of the log."""

    def committed(self, stored: Stored) -> None: ...

    def commanded(self, command: SendMarkers) -> None: ...

    def replied(self, request: Request) -> None: ...

    def settled(self) -> None:
        """A step is over, with all that follows from it."""

    def replaced(self, *, is_told: bool) -> None:
        """This coordinator ends; where `is_told`, it has answered all requests."""


class Manners(NamedTuple):
    """How the log and the process behave for now."""

    refuses: float = 0.0
    """How likely an append is refused."""
    commits: float = 1.0
    """How likely what was appended is committed at once."""
    crashes: float = 0.0
    """How likely the process ends between an append and what follows it."""
    lacks_ids: float = 0.0
    """How likely the broker has no producer id."""


@dataclass(slots=True)
class Shell:
    random: Random
    config: TransactionConfig
    watcher: Watcher
    transaction_version: int = 2
    now_ms: int = 0
    wall_skew_ms: int = 0
    manners: Manners = field(default_factory=Manners)
    log: list[Stored] = field(default_factory=list)
    committed_end_offset: int = 0
    coordinator_epoch: int = 0
    producer_ids_given: int = 0
    shard: TransactionShard = field(init=False)

    def __post_init__(self) -> None:
        self.shard = self._new_shard()

    def _new_shard(self) -> TransactionShard:
        return TransactionShard(
            self.config,
            self._told_committed(),
            self.coordinator_epoch,
            self._next_producer_id,
            lambda: self.transaction_version,
        )

    def _next_producer_id(self) -> int | None:
        if self.random.random() < self.manners.lacks_ids:
            return None
        self.producer_ids_given += 1
        return 1_000 + self.producer_ids_given

    @property
    def end_offset(self) -> int:
        return self.log[-1].end_offset if self.log else 0

    @property
    def wall_ms(self) -> int:
        return WALL_MS + self.now_ms + self.wall_skew_ms

    # Requests

    def ask(self, owner: object, make: Callable[[Waiter], TransactionEvent]) -> Request:
        request = Request(owner)
        request.event = make(Waiter(request, 0))
        self.step(request.event)
        return request

    def step(self, event: TransactionEvent | RuntimeEvent) -> None:
        """As the broker's shell does: what a step writes is appended, and reported before anything else happens."""
        effects = self._stepped(event)
        while effects.has_batch:
            answer = self._append(effects.records, event)
            if self.random.random() < self.manners.crashes:
                self.take_over(is_told=False)
                return
            self._act(effects)
            effects = self._stepped(answer)
        self._act(effects)
        self.watcher.settled()
        if self.end_offset > self.committed_end_offset and self.random.random() < self.manners.commits:
            self.commit()

    def _stepped(self, event: TransactionEvent | RuntimeEvent) -> Effects:
        return self.shard.step(event, self.now_ms, self.wall_ms)

    def _append(self, records: list[Record], cause: TransactionEvent | RuntimeEvent) -> Appended | AppendRefused:
        if self.random.random() < self.manners.refuses:
            return AppendRefused(self.random.choice(REFUSALS))
        changes = tuple(change for change in map(change_of, records) if change is not None)
        base_offset = self.end_offset
        data = build_batch(records, base_offset=base_offset, base_sequence=0)
        self.log.append(Stored(base_offset + len(records), data, changes))
        self.watcher.appended(changes, cause)
        return Appended(self.end_offset)

    def _act(self, effects: Effects) -> None:
        for token, response in effects.replies:
            assert isinstance(token, Request)
            token.replies += 1
            token.response = response
            self.watcher.replied(token)
        for command in effects.commands:
            assert isinstance(command, SendMarkers)
            self.watcher.commanded(command)

    # The log

    def store(self, change: TransactionChange) -> None:
        """A record of a former coordinator."""
        self._append([record_of(change, self.transaction_version, self.wall_ms)], Loaded())

    def commit(self, end_offset: int | None = None) -> None:
        """Up to here, as whole batches; the end where nothing is said."""
        end_offset = self.end_offset if end_offset is None else end_offset
        if end_offset <= self.committed_end_offset:
            return
        for stored in self._uncommitted():
            if stored.end_offset <= end_offset:
                self.watcher.committed(stored)
        self.committed_end_offset = end_offset
        self.step(Committed(self.committed_end_offset))

    def _uncommitted(self) -> list[Stored]:
        found = []
        for stored in reversed(self.log):
            if stored.end_offset <= self.committed_end_offset:
                break
            found.append(stored)
        return found[::-1]

    def boundary(self) -> int:
        """The end of some batch that may be cut away or committed, or of what is committed."""
        return self.random.choice([self.committed_end_offset, *(each.end_offset for each in self._uncommitted())])

    # Time

    def wait(self, ms: int) -> None:
        """Deadlines come up on the way, each at its time."""
        end_ms, ticks = self.now_ms + ms, 0
        while (deadline_ms := self.shard.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            ticks = 0 if deadline_ms > self.now_ms else ticks + 1
            if ticks > TICKS_MAX:
                raise Violation("a deadline is due again and again")
            self.now_ms = max(self.now_ms, deadline_ms)
            self.step(Tick())
        self.now_ms = end_ms

    # Which broker coordinates

    def take_over(self, *, is_told: bool) -> None:
        """Another broker leads the partition: it has all that is committed and perhaps more, and reads it first."""
        if is_told:
            effects = self._stepped(Unloaded())
            assert not effects.records, "a coordinator that was replaced writes nothing"
            self._act(effects)
        self.watcher.replaced(is_told=is_told)
        end_offset = self.boundary()
        while self.log and self.log[-1].end_offset > end_offset:
            self.log.pop()
        self.watcher.cut(self.log)
        self.coordinator_epoch += 1
        self.shard = self._new_shard()
        for change, change_end_offset in self._read():
            self.shard.replay(change, change_end_offset)
        for stored in self._uncommitted():
            self.watcher.committed(stored)
        self.committed_end_offset = self.end_offset
        # The high watermark moves before the machine is told that it is loaded, or after.
        events: list[RuntimeEvent] = [Committed(self.committed_end_offset), Loaded()]
        for event in self.random.sample(events, 2):
            self.step(event)

    def _told_committed(self) -> int:
        """A new leader's high watermark lags."""
        return self.random.choice([0, self.committed_end_offset, self.random.randint(0, self.committed_end_offset)])

    def _read(self) -> Iterator[tuple[TransactionChange, int]]:
        """Some batches at a time."""
        reader, rest = LogReader(0, TransactionRecordReader()), self.log
        while rest:
            count = self.random.choice((10, 30, len(rest)))
            piece, rest = rest[:count], rest[count:]
            yield from reader.read(b"".join(stored.data for stored in piece))
