"""What the shell asks of the machine of transactions, what it is answered, and what the machine commands."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from coordinator.runtime.effects import Waiter
from protocol.errors import ErrorCode

TopicPartition: TypeAlias = tuple[str, int]
PartitionErrors: TypeAlias = dict[TopicPartition, ErrorCode]

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
EPOCH_BUMP_VERSION = 2
"""From this version of the protocol of transactions on, each end of a transaction moves the epoch (KIP-890)."""


class ProducerIdAnswer(NamedTuple):
    """The producer id and epoch that the client goes on with; both -1 where there are none."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


class InitProducerId(NamedTuple):
    """Answered with a `ProducerIdAnswer`."""

    waiter: Waiter
    transactional_id: str
    timeout_ms: int
    producer_id: int
    """Of the producer that goes on after an error (KIP-360); -1 for a producer that starts."""
    producer_epoch: int
    transaction_version: int
    """The finalized level of transaction.version."""


class AddPartitions(NamedTuple):
    """Answered with an `ErrorCode`. AddOffsetsToTxn is this event with the partition of `__consumer_offsets`."""

    waiter: Waiter
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    client_version: int
    """2 where a produce adds the partition, 0 where the client of an earlier protocol does. Records have it so."""


class VerifyPartitions(NamedTuple):
    """Whether the partitions are part of the transaction. Answered with `PartitionErrors`."""

    waiter: Waiter
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]


class EndTransaction(NamedTuple):
    """Answered with a `ProducerIdAnswer` once the outcome is committed; before protocol 2 its id and epoch are -1."""

    waiter: Waiter
    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    client_version: int
    """2 from version 5 of EndTxn on, 0 before it."""


class SendMarkers(NamedTuple):
    """A command: write the marker of this outcome to each of the partitions, however long that takes, and report
    `MarkersWritten`. The same command may come again from a new coordinator, with a higher epoch."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    partitions: tuple[TopicPartition, ...]
    transaction_version: int
    """Of the client's protocol: a partition's leader requires a higher epoch than the transaction's from 2 on."""
    number: int
    """Of the command, among those of this coordinator: the next transaction of protocol 1 has the same epoch."""


class MarkersWritten(NamedTuple):
    """These partitions have the markers of a command in their logs, or do not exist any more."""

    command: SendMarkers
    partitions: frozenset[TopicPartition]


TransactionEvent: TypeAlias = InitProducerId | AddPartitions | VerifyPartitions | EndTransaction | MarkersWritten
