"""A coordinator of transactions on a stage: its log, its clocks, its clients, the brokers that write its markers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count

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
from moldau.coordinator.transaction.events import (
    EPOCH_BUMP_VERSION,
    AddPartitions,
    EndTransaction,
    InitProducerId,
    MarkersWritten,
    PartitionErrors,
    ProducerIdAnswer,
    SendMarkers,
    TopicPartition,
    TransactionConfig,
    TransactionEvent,
    VerifyPartitions,
)
from moldau.coordinator.transaction.records import TransactionChange, TransactionRecordReader, change_of, record_of
from moldau.coordinator.transaction.shard import TransactionDescription, TransactionShard
from moldau.coordinator.transaction.transaction import Transaction
from moldau.protocol.errors import ErrorCode
from moldau.protocol.record_builder import Record, build_batch

WALL_MS = 1_700_000_000_000
TID = "tid"
TIMEOUT_MS = 60_000
A: TopicPartition = ("a", 0)
B: TopicPartition = ("b", 1)


def client_version(protocol: int) -> int:
    """What records say of a protocol: of the first, what they say of no transaction."""
    return protocol if protocol >= EPOCH_BUMP_VERSION else 0


@dataclass(slots=True)
class Batch:
    end_offset: int
    data: bytes
    changes: list[TransactionChange]


@dataclass(slots=True)
class TransactionStage:
    """What a step writes is appended at once, and committed at once save where `is_held`."""

    config: TransactionConfig = field(default_factory=TransactionConfig)
    transaction_version: int = 2
    now_ms: int = 0
    is_held: bool = False
    """Whether the in-sync replicas lag: nothing that is appended is committed."""
    refusal: ErrorCode = ErrorCode.NONE
    """The error with which the log answers an append."""
    has_producer_ids: bool = True
    coordinator_epoch: int = 0
    log: list[Batch] = field(default_factory=list)
    committed_end_offset: int = 0
    replies: dict[object, object] = field(default_factory=dict)
    commands: list[SendMarkers] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    shard: TransactionShard = field(init=False)
    _producer_ids: count[int] = field(default_factory=lambda: count(1_000))
    _tokens: count[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        self.shard = self._new_shard()
        self.step(Loaded())

    def _new_shard(self) -> TransactionShard:
        return TransactionShard(
            self.config,
            self.committed_end_offset,
            self.coordinator_epoch,
            lambda: next(self._producer_ids) if self.has_producer_ids else None,
            lambda: self.transaction_version,
        )

    @property
    def end_offset(self) -> int:
        return self.log[-1].end_offset if self.log else 0

    @property
    def wall_ms(self) -> int:
        return WALL_MS + self.now_ms

    # The shell

    def step(self, event: TransactionEvent | RuntimeEvent) -> None:
        effects = self._stepped(event)
        while effects.has_batch:
            answer = self._append(effects.records)
            self._act(effects)
            effects = self._stepped(answer)
        self._act(effects)
        if not self.is_held:
            self.commit()

    def _stepped(self, event: TransactionEvent | RuntimeEvent) -> Effects:
        return self.shard.step(event, self.now_ms, self.wall_ms)

    def _append(self, records: list[Record]) -> Appended | AppendRefused:
        if self.refusal is not ErrorCode.NONE:
            return AppendRefused(self.refusal)
        base_offset = self.end_offset
        changes = [change for change in map(change_of, records) if change is not None]
        data = build_batch(records, base_offset=base_offset, base_sequence=0)
        self.log.append(Batch(base_offset + len(records), data, changes))
        return Appended(self.end_offset)

    def _act(self, effects: Effects) -> None:
        for token, response in effects.replies:
            assert token not in self.replies, "a request is answered once"
            self.replies[token] = response
        for command in effects.commands:
            assert isinstance(command, SendMarkers)
            self.commands.append(command)
        self.notes += effects.notes

    def commit(self) -> None:
        """Commit the whole log."""
        if self.committed_end_offset < self.end_offset:
            self.committed_end_offset = self.end_offset
            self.step(Committed(self.committed_end_offset))

    def release(self) -> None:
        self.is_held = False
        self.commit()

    def wait(self, ms: int) -> None:
        """Deadlines come up on the way, each at its time."""
        end_ms = self.now_ms + ms
        while (deadline_ms := self.shard.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.step(Tick())
        self.now_ms = end_ms

    def fail_over(self, end_offset: int | None = None) -> None:
        """Another broker coordinates, with the log up to here; what was not committed may be gone."""
        self.step_without_commit(Unloaded())
        end_offset = self.committed_end_offset if end_offset is None else end_offset
        self.log = [batch for batch in self.log if batch.end_offset <= end_offset]
        self.coordinator_epoch += 1
        self.shard = self._new_shard()
        reader = LogReader(0, TransactionRecordReader())
        for change, change_end_offset in reader.read(b"".join(batch.data for batch in self.log)):
            self.shard.replay(change, change_end_offset)
        self.committed_end_offset = self.end_offset
        self.step(Committed(self.committed_end_offset))
        self.step(Loaded())

    def step_without_commit(self, event: RuntimeEvent) -> None:
        self._act(self._stepped(event))

    def store(self, transaction: Transaction | None, tid: str = TID) -> None:
        """Append a record of a former coordinator, for the next one to load."""
        self.load({tid: transaction})

    def load(self, transactions: Mapping[str, Transaction | None]) -> None:
        """One record each."""
        changes = [TransactionChange(tid, transaction) for tid, transaction in transactions.items()]
        records = [record_of(change, self.transaction_version, self.wall_ms) for change in changes]
        assert isinstance(self._append(records), Appended)
        self.fail_over(self.end_offset)

    # Clients

    def init(
        self, producer_id: int = -1, epoch: int = -1, *, tid: str = TID, timeout_ms: int = TIMEOUT_MS
    ) -> ProducerIdAnswer | None:
        event = InitProducerId(self._waiter(), tid, timeout_ms, producer_id, epoch, self.transaction_version)
        answer = self._ask(event)
        assert answer is None or isinstance(answer, ProducerIdAnswer)
        return answer

    def add(
        self, producer_id: int, epoch: int, *partitions: TopicPartition, tid: str = TID, protocol: int = 2
    ) -> ErrorCode | None:
        answer = self._ask(AddPartitions(self._waiter(), tid, producer_id, epoch, partitions, client_version(protocol)))
        assert answer is None or isinstance(answer, ErrorCode)
        return answer

    def verify(self, producer_id: int, epoch: int, *partitions: TopicPartition, tid: str = TID) -> PartitionErrors:
        answer = self._ask(VerifyPartitions(self._waiter(), tid, producer_id, epoch, partitions))
        assert isinstance(answer, dict)
        return answer

    def end(
        self, producer_id: int, epoch: int, *, commits: bool, tid: str = TID, protocol: int = 2
    ) -> ProducerIdAnswer | None:
        answer = self._ask(EndTransaction(self._waiter(), tid, producer_id, epoch, commits, client_version(protocol)))
        assert answer is None or isinstance(answer, ProducerIdAnswer)
        return answer

    def _waiter(self) -> Waiter:
        return Waiter(next(self._tokens), 0)

    def _ask(self, event: InitProducerId | AddPartitions | VerifyPartitions | EndTransaction) -> object:
        """The answer; None where it does not come at once."""
        self.step(event)
        return self.replies.get(event.waiter.token)

    @property
    def last_reply(self) -> object:
        """The last answer."""
        return list(self.replies.values())[-1]

    # Brokers

    def written(self, command: SendMarkers, *partitions: TopicPartition) -> None:
        """Report markers of a command: of these partitions, or of all."""
        self.step(MarkersWritten(command, frozenset(partitions or command.partitions)))

    def write_markers(self) -> None:
        """Report all markers that were commanded."""
        while self.commands:
            self.written(self.commands.pop(0))

    # Looking

    @property
    def last(self) -> Transaction:
        """The content of the last record in the log."""
        value = self.log[-1].changes[-1].value
        assert value is not None
        return value

    def describe(self, tid: str = TID) -> TransactionDescription:
        description = self.shard.describe(tid)
        assert isinstance(description, TransactionDescription)
        return description

    def state(self, tid: str = TID) -> str:
        description = self.shard.describe(tid)
        return "Dead" if isinstance(description, ErrorCode) else description.state
