"""A coordinator of transactions on a stage, its clients, and the brokers that write its markers."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count

from moldau.coordinator.runtime.machine import Effects, Loaded
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
    VerifyPartitions,
)
from moldau.coordinator.transaction.records import TransactionChange, TransactionRecordReader, change_of, record_of
from moldau.coordinator.transaction.shard import TransactionDescription, TransactionShard
from moldau.coordinator.transaction.transaction import Transaction
from moldau.protocol.errors import ErrorCode
from tests.support.machine_stage import MachineStage

TID = "tid"
TIMEOUT_MS = 60_000
A: TopicPartition = ("a", 0)
B: TopicPartition = ("b", 1)


def client_version(protocol: int) -> int:
    """What records say of a protocol: of the first, what they say of no transaction."""
    return protocol if protocol >= EPOCH_BUMP_VERSION else 0


class TransactionStage(MachineStage[TransactionShard]):
    def __init__(
        self,
        config: TransactionConfig | None = None,
        transaction_version: int = 2,
        *,
        is_held: bool = False,
        refusal: ErrorCode = ErrorCode.NONE,
        has_producer_ids: bool = True,
    ) -> None:
        self.config = config or TransactionConfig()
        self.transaction_version = transaction_version
        self.has_producer_ids = has_producer_ids
        self._producer_ids = count(1_000)
        super().__init__()
        self.is_held = is_held
        self.refusal = refusal
        self.step(Loaded())

    def new_shard(self, committed_end_offset: int) -> TransactionShard:
        return TransactionShard(
            self.config,
            committed_end_offset,
            self.epoch,
            self.next_producer_id,
            lambda: self.transaction_version,
        )

    def next_producer_id(self) -> int | None:
        return next(self._producer_ids) if self.has_producer_ids else None

    def new_reader(self) -> TransactionRecordReader:
        return TransactionRecordReader()

    def changes_of(self, effects: Effects) -> list[TransactionChange]:
        return [change for change in map(change_of, effects.records) if change is not None]

    # Transactions of a former coordinator

    def load(self, transactions: Mapping[str, Transaction | None]) -> None:
        """Store one record each, and load them."""
        changes = [TransactionChange(tid, transaction) for tid, transaction in transactions.items()]
        self.store(*(record_of(change, self.transaction_version, self.wall_ms) for change in changes))
        self.take_over(end_offset=self.end_offset)

    # Clients

    def init(
        self, producer_id: int = -1, epoch: int = -1, *, tid: str = TID, timeout_ms: int = TIMEOUT_MS
    ) -> ProducerIdAnswer | None:
        event = InitProducerId(self.waiter(), tid, timeout_ms, producer_id, epoch, self.transaction_version)
        answer = self.ask(event)
        assert answer is None or isinstance(answer, ProducerIdAnswer)
        return answer

    def add(
        self, producer_id: int, epoch: int, *partitions: TopicPartition, tid: str = TID, protocol: int = 2
    ) -> ErrorCode | None:
        answer = self.ask(AddPartitions(self.waiter(), tid, producer_id, epoch, partitions, client_version(protocol)))
        assert answer is None or isinstance(answer, ErrorCode)
        return answer

    def verify(self, producer_id: int, epoch: int, *partitions: TopicPartition, tid: str = TID) -> PartitionErrors:
        answer = self.ask(VerifyPartitions(self.waiter(), tid, producer_id, epoch, partitions))
        assert isinstance(answer, dict)
        return answer

    def end(
        self, producer_id: int, epoch: int, *, commits: bool, tid: str = TID, protocol: int = 2
    ) -> ProducerIdAnswer | None:
        answer = self.ask(EndTransaction(self.waiter(), tid, producer_id, epoch, commits, client_version(protocol)))
        assert answer is None or isinstance(answer, ProducerIdAnswer)
        return answer

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
        assert isinstance(value, Transaction)
        return value

    def describe(self, tid: str = TID) -> TransactionDescription:
        description = self.shard.describe(tid)
        assert isinstance(description, TransactionDescription)
        return description

    def state(self, tid: str = TID) -> str:
        description = self.shard.describe(tid)
        return "Dead" if isinstance(description, ErrorCode) else description.state
