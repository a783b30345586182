"""A second machine on the coordinators' runtime: counters by key, in a topic of their own.

A counter grows by what clients add, and is forgotten when no client adds to it for a while. Readers see what is
committed. It is as small as a machine can be that uses everything the runtime has: pairs, outcomes, timers, loading.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from moldau.broker.config.internal_topics import InternalTopic
from moldau.broker.coordinators.definition import CoordinatorDefinition, KeyType
from moldau.coordinator.runtime.log_reading import RecordReader
from moldau.coordinator.runtime.machine import Waiter
from moldau.coordinator.runtime.shard import Shard
from moldau.coordinator.runtime.step import Step, Timers, UncommittedChanges
from moldau.protocol.compression import Codec
from moldau.protocol.errors import ErrorCode
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_builder import Record

COUNTERS_TOPIC: Final = "__counters"
IDLE_MS: Final = 60_000
COMMIT_TIMEOUT_MS: Final = 5_000
VALUE: Final = struct.Struct(">q")


class Add(NamedTuple):
    """Add to a counter. Answered with its new value once that is committed, or with an error."""

    waiter: Waiter
    key: str
    amount: int


class Count(NamedTuple):
    """The content of a record: the value of a counter; None: the counter is removed."""

    key: str
    value: int | None


class Told(NamedTuple):
    """The outcome of an `Add`."""

    waiter: Waiter
    value: int

    def on_committed(self, step: CounterStep) -> None:
        step.reply(self.waiter, self.value)

    def on_failed(self, step: CounterStep, error: ErrorCode) -> None:
        step.reply(self.waiter, error)


@dataclass(slots=True)
class CounterStep(Step[Count]):
    pass


class CounterShard(Shard[Add, Count, CounterStep]):
    def __init__(self, committed_end_offset: int) -> None:
        super().__init__(committed_end_offset)
        self.committed: dict[str, int] = {}
        self._pending: UncommittedChanges[Count] = UncommittedChanges()
        self._idle: Timers[str] = Timers()

    @property
    def commit_timeout_ms(self) -> int:
        return COMMIT_TIMEOUT_MS

    def begin(self, now_ms: int, wall_ms: int) -> CounterStep:
        return CounterStep(now_ms, wall_ms)

    def decide(self, step: CounterStep, request: Add) -> None:
        """An amount of 0 only reads."""
        value = self.latest(request.key) + request.amount
        if request.amount:
            step.write(Count(request.key, value))
        step.when_committed(Told(request.waiter, value))
        self._idle.schedule(request.key, step.now_ms + IDLE_MS)

    def record_of(self, change: Count, wall_ms: int) -> Record:
        value = None if change.value is None else VALUE.pack(change.value)
        return Record(change.key.encode(), value, wall_ms)

    def replay(self, change: Count, end_offset: int) -> None:
        self._pending.add(change, end_offset)
        if not self.is_loaded:
            self.commit()

    def commit(self) -> None:
        for change in self._pending.pop_committed(self.committed_end_offset):
            apply(self.committed, change)

    def on_loaded(self, step: CounterStep) -> None:
        for key in self.committed:
            self._idle.schedule(key, step.now_ms + IDLE_MS)

    def on_unloaded(self, step: CounterStep) -> None:
        step.notes.append(f"{len(self.committed)} counters go")

    def next_timer_ms(self) -> int | None:
        return self._idle.next_deadline_ms()

    def fire_timer(self, step: CounterStep) -> None:
        key = self._idle.pop_due(step.now_ms)
        if key is not None:
            step.write(Count(key, None))

    def latest(self, key: str) -> int:
        latest = dict(self.committed)
        for change in self._pending:
            apply(latest, change)
        return latest.get(key, 0)


def apply(counters: dict[str, int], change: Count) -> None:
    if change.value is None:
        counters.pop(change.key, None)
    else:
        counters[change.key] = change.value


def count_of(record: Record) -> Count:
    if record.key is None or (record.value is not None and len(record.value) != VALUE.size):
        raise MalformedMessage("no counter")
    value: int | None = None if record.value is None else VALUE.unpack(record.value)[0]
    return Count(record.key.decode(), value)


CounterRow: TypeAlias = CoordinatorDefinition[CounterShard, Add, Count]


def counter_row(*, partitions: int = 1, replication_factor: int = 1) -> CounterRow:
    return CoordinatorDefinition(
        topic=InternalTopic(COUNTERS_TOPIC, partitions, replication_factor, {"cleanup.policy": "compact"}),
        key_type=KeyType.SHARE,
        log_name="moldau.counters",
        new_shard=lambda high_watermark, leader_epoch: CounterShard(high_watermark),
        new_reader=lambda: RecordReader(count_of),
        load_buffer_size=300,
        codec=Codec.NONE,
    )
