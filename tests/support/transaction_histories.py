"""Random histories of transactional producers over logs of real batches, with the truth about every transaction.

Each producer repeats: read committed records, write some, commit the offsets that it has read, in one transaction; its
coordinator stores every step in `__transaction_state`, and the markers arrive one by one. The clocks of the nodes
differ. A backup asks for the ends of the logs between these steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple

from moldau.coordinator.group.records import CommittedOffset, OffsetChange, offset_record
from moldau.coordinator.transaction.records import TransactionChange, record_of
from moldau.coordinator.transaction.transaction import (
    COMPLETE_COMMIT,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    Transaction,
    as_completed_transaction,
    as_fenced_transaction,
    as_prepared_transaction,
    new_transaction,
    with_next_epoch,
    with_partitions,
)
from moldau.protocol.control_records import end_transaction_marker
from moldau.protocol.record_batch import parse_header
from moldau.protocol.record_builder import Record, build_batch
from moldau.protocol.record_reader import records_of

TopicPartition = tuple[str, int]
OFFSETS: Final = ("__consumer_offsets", 0)
DATA: Final[tuple[TopicPartition, ...]] = tuple((topic, index) for topic in ("in", "out") for index in (0, 1))
STATES: Final = (0, 1)
START_MS: Final = 1_700_000_000_000
STEP_MS: Final = 20
"""The least time between two steps. A transaction takes several."""
SKEW_MS: Final = 9
"""No two clocks differ by more than twice this."""


@dataclass(eq=False)
class Log:
    skew_ms: int = 0
    batches: list[bytes] = field(default_factory=list)
    end_offset: int = 0

    def append(self, batch: bytes) -> int:
        """Store a batch at the end. Returns its offset."""
        offset = self.end_offset
        moved = bytearray(batch)
        moved[:8] = offset.to_bytes(8, "big")
        self.batches.append(bytes(moved))
        self.end_offset = parse_header(moved).next_offset
        return offset


@dataclass(eq=False)
class Truth:
    """One transaction as it was."""

    number: int
    transactional_id: str
    records: dict[TopicPartition, list[int]] = field(default_factory=dict)
    """The offsets of its records."""
    has_read: set[Truth] = field(default_factory=set)
    """The transactions whose records it has read."""
    commits: dict[TopicPartition, int] = field(default_factory=dict)
    is_commit: bool | None = None
    decided_ms: int | None = None
    completed_ms: int | None = None
    former: Truth | None = None
    """The committed transaction of its id before it."""

    @property
    def rests_on(self) -> set[Truth]:
        return self.has_read | ({self.former} if self.former is not None else set())


@dataclass(eq=False)
class Producer:
    transactional_id: str
    protocol: int
    state: Transaction
    clock_ms: int
    """How far the clock of the client is ahead."""
    truth: Truth | None = None
    former: Truth | None = None
    sequences: dict[tuple[TopicPartition, int], int] = field(default_factory=dict)
    """The next sequence by partition and epoch."""
    unmarked: list[TopicPartition] = field(default_factory=list)


class World:
    """The logs, and what is true of them."""

    def __init__(self, seed: int, *, skew_ms: int = SKEW_MS, client_skew_ms: int = 0) -> None:
        self.random = random = Random(seed)
        self._skew_ms, self._client_skew_ms = skew_ms, client_skew_ms
        self.now_ms = START_MS
        self.logs: dict[TopicPartition, Log] = {key: Log(self._skew()) for key in (*DATA, OFFSETS)}
        self.states = {index: Log(self._skew()) for index in STATES}
        self.truths: list[Truth] = []
        self.writers: dict[tuple[TopicPartition, int], Truth] = {}
        """The transaction of each record."""
        self.ended: dict[TopicPartition, dict[int, bool]] = {key: {} for key in self.logs}
        """By partition and number of a transaction: whether its marker there commits."""
        self.positions: dict[tuple[str, TopicPartition], int] = {}
        self.producers = [
            self._producer(f"producer-{number}", random.choice((0, 2))) for number in range(random.randint(2, 4))
        ]

    def _skew(self) -> int:
        return self.random.randint(-self._skew_ms, self._skew_ms)

    def _producer(self, transactional_id: str, protocol: int) -> Producer:
        state = new_transaction(1000 + len(transactional_id) + int(transactional_id[-1]), 60_000, self.now_ms)
        clock_ms = self.random.randint(-self._client_skew_ms, self._client_skew_ms)
        made = Producer(transactional_id, protocol, state, clock_ms)
        self._store(made, state)
        return made

    def run(self, steps: int) -> None:
        """Let random producers take steps."""
        for _ in range(steps):
            self.now_ms += STEP_MS + self.random.randrange(10)
            self._advance(self.random.choice(self.producers))

    # What a producer and its coordinator do

    def state_partition(self, transactional_id: str) -> int:
        return int(transactional_id[-1]) % len(STATES)

    def _store(self, producer: Producer, state: Transaction) -> None:
        producer.state = state
        log = self.states[self.state_partition(producer.transactional_id)]
        record = record_of(TransactionChange(producer.transactional_id, state), 2, self.now_ms + log.skew_ms)
        log.append(build_batch([record], partition_leader_epoch=3))

    def _clock(self, producer: Producer) -> int:
        return self.now_ms + self.states[self.state_partition(producer.transactional_id)].skew_ms

    def _advance(self, producer: Producer) -> None:
        state = producer.state.state
        if state in (PREPARE_COMMIT, PREPARE_ABORT):
            self._mark(producer)
        elif producer.truth is None:
            self._begin(producer)
        elif self.random.random() < 0.6:
            self._work(producer, producer.truth)
        else:
            self._end(producer, producer.truth)

    def _begin(self, producer: Producer) -> None:
        producer.truth = Truth(len(self.truths), producer.transactional_id, former=producer.former)
        self.truths.append(producer.truth)
        self._add(producer, self.random.choice(DATA))

    def _add(self, producer: Producer, partition: TopicPartition) -> None:
        if producer.state.state is not ONGOING or partition not in producer.state.partitions:
            state = with_partitions(producer.state, frozenset({partition}), producer.protocol, self._clock(producer))
            self._store(producer, state)

    def _work(self, producer: Producer, truth: Truth) -> None:
        kind = self.random.random()
        if kind < 0.2:
            self._add(producer, self.random.choice(DATA))  # A partition that may stay without records.
        elif kind < 0.7:
            self._write(producer, truth, self.random.choice(DATA))
        else:
            self._consume(producer, truth, self.random.choice(DATA))

    def _write(self, producer: Producer, truth: Truth, partition: TopicPartition) -> None:
        self._add(producer, partition)
        count = self.random.randint(1, 3)
        values = [Record(None, str(truth.number).encode(), self.now_ms + producer.clock_ms) for _ in range(count)]
        self._append(producer, truth, partition, values)

    def _append(self, producer: Producer, truth: Truth, partition: TopicPartition, records: list[Record]) -> None:
        log = self.logs[partition]
        numbered = partition, producer.state.producer_epoch
        sequence = producer.sequences.get(numbered, 0)
        producer.sequences[numbered] = sequence + len(records)
        batch = build_batch(
            records,
            producer_id=producer.state.producer_id,
            producer_epoch=producer.state.producer_epoch,
            base_sequence=sequence,
            is_transactional=True,
            partition_leader_epoch=2,
        )
        offset = log.append(batch)
        for place in range(offset, log.end_offset):
            truth.records.setdefault(partition, []).append(place)
            self.writers[partition, place] = truth

    def _consume(self, producer: Producer, truth: Truth, partition: TopicPartition) -> None:
        """Read the committed records that follow in a partition, and commit the position in the transaction."""
        group = f"group-{producer.transactional_id[-1]}"
        start = truth.commits.get(partition, self.positions.get((group, partition), 0))
        stable = self.last_stable_offset(partition)
        end = min(stable, start + self.random.randint(1, 6))
        if end <= start:
            return
        for offset in range(start, end):
            writer = self.writers.get((partition, offset))
            if writer is not None and self.ended[partition][writer.number]:
                truth.has_read.add(writer)
        truth.commits[partition] = end
        self._add(producer, OFFSETS)
        change = OffsetChange(group, *partition, CommittedOffset(end, 2, "", self.now_ms))
        self._append(producer, truth, OFFSETS, [offset_record(change, self.now_ms)])

    def last_stable_offset(self, partition: TopicPartition) -> int:
        return min(
            (
                records[partition][0]
                for truth in self.truths
                if (records := truth.records).get(partition) and truth.number not in self.ended[partition]
            ),
            default=self.logs[partition].end_offset,
        )

    def _end(self, producer: Producer, truth: Truth) -> None:
        clock, before = self._clock(producer), producer.state
        is_commit = self.random.random() < 0.8
        if producer.protocol == 0 and not is_commit and self.random.random() < 0.5:
            after = as_fenced_transaction(before, clock)
        else:
            after = as_prepared_transaction(
                before, is_commit=is_commit, client_version=producer.protocol, next_producer_id=-1, wall_ms=clock
            )
        truth.is_commit, truth.decided_ms = is_commit, self.now_ms
        producer.unmarked = self.random.sample(sorted(after.partitions), len(after.partitions))
        self._store(producer, after)

    def _mark(self, producer: Producer) -> None:
        truth, state = producer.truth, producer.state
        assert truth is not None
        if producer.unmarked:
            partition = producer.unmarked[-1]
            if self.random.random() < 0.9:  # Otherwise the marker is written again.
                producer.unmarked.pop()
            log = self.logs[partition]
            marker = end_transaction_marker(
                commits=state.state is PREPARE_COMMIT,
                producer_id=state.producer_id,
                producer_epoch=state.producer_epoch,
                coordinator_epoch=3,
                timestamp=self.now_ms + log.skew_ms,
                partition_leader_epoch=2,
            )
            log.append(marker)
            self.ended[partition][truth.number] = state.state is PREPARE_COMMIT
            return
        self._store(producer, as_completed_transaction(state, self._clock(producer)))
        if producer.state.state is COMPLETE_COMMIT:
            group = f"group-{producer.transactional_id[-1]}"
            self.positions |= {(group, partition): offset for partition, offset in truth.commits.items()}
            producer.former = truth
        truth.completed_ms = self.now_ms
        producer.truth = None
        if state.state is PREPARE_ABORT and producer.protocol == 0:
            self._store(producer, with_next_epoch(producer.state, 60_000, self._clock(producer), goes_on=True))


class Vector(NamedTuple):
    """What a backup asked for."""

    ends: dict[TopicPartition, int]
    decided: Mapping[int, int | None]
    """The ends of `__transaction_state` before all others."""
    states: dict[int, int]
    """The ends of `__transaction_state` after all others."""
    first_ms: int
    last_ms: int


def ask(world: World, pause: int) -> Vector:
    """Ask for the ends in the order of a backup, up to `pause` steps of the producers between two questions."""

    def asked(log: Log) -> int:
        world.run(world.random.randint(0, pause))
        return log.end_offset

    first_ms = world.now_ms
    decided = {index: asked(log) for index, log in world.states.items()}
    order = [OFFSETS, *world.random.sample(DATA, len(DATA))]
    ends = {key: asked(world.logs[key]) for key in order}
    states = {index: asked(log) for index, log in world.states.items()}
    return Vector(ends, decided, states, first_ms, world.now_ms)


def batches_below(log: Log, end: int) -> Iterator[bytes]:
    for batch in log.batches:
        if parse_header(batch).next_offset > end:
            return
        yield batch


def compacted(log: Log, below: int) -> Iterator[bytes]:
    """The batches of a log of states; below an offset only the last record of each transactional id is there."""
    last: dict[bytes | None, int] = {}
    keys = {}
    for batch in log.batches:
        (record,) = records_of(batch)
        keys[record.offset] = record.key
        if record.offset < below:
            last[record.key] = record.offset
    for offset, batch in enumerate(log.batches):
        if offset >= below or last[keys[offset]] == offset:
            yield batch
