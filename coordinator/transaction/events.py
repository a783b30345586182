"""The interface of the transaction machine: its settings, events, answers and commands."""

from __future__ import annotations

from typing import TypeAlias

from moldau.coordinator.runtime.machine import Waiter
from moldau.protocol.errors import ErrorCode
from moldau.protocol.late_dataclass import dataclass
from moldau.protocol.late_tuple import NamedTuple

TopicPartition: TypeAlias = tuple[str, int]
PartitionErrors: TypeAlias = dict[TopicPartition, ErrorCode]
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
OLD_PROTOCOL = 0
NEW_PROTOCOL = 2
"""The protocols of producers: in the new one a Produce adds its partition to the transaction (KIP-890)."""
EPOCH_BUMP_VERSION = 2
"""From this transaction.version on, each end of a transaction increases the producer epoch (KIP-890)."""


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """Kafka's settings of transactions, with the defaults of 4.3.1."""

    max_timeout_ms: int = 900_000
    """transaction.max.timeout.ms"""
    id_expiration_ms: int = 604_800_000
    """transactional.id.expiration.ms"""
    id_cleanup_interval_ms: int = 3_600_000
    """transaction.remove.expired.transaction.cleanup.interval.ms"""
    abort_interval_ms: int = 10_000
    """transaction.abort.timed.out.transaction.cleanup.interval.ms"""
    state_topic_num_partitions: int = 50
    """transaction.state.log.num.partitions"""
    state_topic_replication_factor: int = 3
    """transaction.state.log.replication.factor"""
    state_topic_min_isr: int = 2
    """transaction.state.log.min.isr"""
    state_topic_segment_bytes: int = 104_857_600
    """transaction.state.log.segment.bytes"""
    load_buffer_size: int = 5_242_880
    """transaction.state.log.load.buffer.size"""
    commit_timeout_ms: int = 30_000
    """request.timeout.ms: the time (ms) that a client waits for the commit of a record.

    Apache Kafka waits for the timeout of the transaction.
    """


class ProducerIdAnswer(NamedTuple):
    """The producer id and epoch with which the client continues; both -1 if there are none."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


class InitProducerId(NamedTuple):
    """An InitProducerId. Answered with a `ProducerIdAnswer`."""

    waiter: Waiter
    transactional_id: str
    timeout_ms: int
    producer_id: int
    """The producer that continues after an error (KIP-360); -1 for a producer that starts."""
    producer_epoch: int
    transaction_version: int
    """The finalized level of transaction.version."""


class AddPartitions(NamedTuple):
    """An AddPartitionsToTxn, answered with an `ErrorCode`.

    AddOffsetsToTxn is the same event with the partition of `__consumer_offsets`.
    """

    waiter: Waiter
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    client_version: int
    """`NEW_PROTOCOL` if a Produce adds the partition, otherwise `OLD_PROTOCOL`. The records store this value."""


class VerifyPartitions(NamedTuple):
    """Asks whether the partitions are part of the transaction. Answered with `PartitionErrors`."""

    waiter: Waiter
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]


class EndTransaction(NamedTuple):
    """An EndTxn.

    Answered with a `ProducerIdAnswer` once the outcome is committed; before protocol 2 its id and epoch are -1.
    """

    waiter: Waiter
    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    client_version: int
    """2 from version 5 of EndTxn on, 0 before it."""


class SendMarkers(NamedTuple):
    """A command: write the marker of this outcome to each of the partitions, retry without a time limit, and report
    `MarkersWritten`. The same command may come again from a new coordinator, with a higher epoch.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    partitions: tuple[TopicPartition, ...]
    transaction_version: int
    """The transaction.version of the client.

    From 2 on a partition's leader requires that the marker has a higher epoch than the transaction.
    """
    number: int
    """The number of the command within this coordinator.

    The epoch cannot identify a command: the next transaction of protocol 1 has the same epoch.
    """


class MarkersWritten(NamedTuple):
    """The markers of a command are in the logs of these partitions, or the partitions do not exist any more."""

    command: SendMarkers
    partitions: frozenset[TopicPartition]


TransactionEvent: TypeAlias = InitProducerId | AddPartitions | VerifyPartitions | EndTransaction | MarkersWritten
