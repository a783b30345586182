"""The interface of the transaction coordinator's machine: its settings, events, answers and commands."""

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
"""The versions of the transaction protocol that a producer may use. In version 2 a Produce request adds its partition
to the transaction (KIP-890)."""
EPOCH_BUMP_VERSION = 2
"""From this version of the transaction protocol on, each end of a transaction increases the producer epoch
(KIP-890)."""


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
    """request.timeout.ms: the time (ms) after which a request is answered with an error if its record is not committed.

    Apache Kafka instead waits for the timeout of the transaction.
    """


class ProducerIdAnswer(NamedTuple):
    """The error of a request, and the producer id and epoch with which the client continues; both are -1 if the client
    gets none."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


class InitProducerId(NamedTuple):
    """An InitProducerId request. The answer is a `ProducerIdAnswer`."""

    waiter: Waiter
    transactional_id: str
    timeout_ms: int
    producer_id: int
    """The producer id of a producer that continues after an error (KIP-360); -1 for a producer that starts."""
    producer_epoch: int
    transaction_version: int
    """The finalized level of transaction.version."""


class AddPartitions(NamedTuple):
    """An AddPartitionsToTxn request. The answer is an `ErrorCode`.

    AddOffsetsToTxn is the same event with the group's partition of `__consumer_offsets`.
    """

    waiter: Waiter
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    client_version: int
    """The version of the protocol: `NEW_PROTOCOL` if a Produce adds the partition, otherwise `OLD_PROTOCOL`. The record
    of the transaction stores it."""


class VerifyPartitions(NamedTuple):
    """The request of a broker to verify that partitions are part of the transaction. The answer is
    `PartitionErrors`."""

    waiter: Waiter
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]


class EndTransaction(NamedTuple):
    """An EndTxn request.

    The answer is a `ProducerIdAnswer`, sent once the outcome is committed in the log. In the old protocol its producer
    id and epoch are -1.
    """

    waiter: Waiter
    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    client_version: int
    """The version of the protocol: 2 from version 5 of EndTxn on, 0 for earlier versions."""


class SendMarkers(NamedTuple):
    """The command to write the marker of a transaction to each of its partitions, to retry without a time limit, and to
    report `MarkersWritten`. A new coordinator may give the same command again, with a higher coordinator epoch."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    partitions: tuple[TopicPartition, ...]
    transaction_version: int
    """The version of the transaction protocol that the client uses.

    From 2 on a partition's leader requires that the marker has a higher producer epoch than the transaction.
    """
    number: int
    """The number that identifies the command among those of this coordinator.

    The producer epoch cannot identify a command, because in protocol 1 the next transaction has the same epoch.
    """


class MarkersWritten(NamedTuple):
    """The report that the markers of a command are in the logs of these partitions, or that the partitions do not exist
    any more."""

    command: SendMarkers
    partitions: frozenset[TopicPartition]


TransactionEvent: TypeAlias = InitProducerId | AddPartitions | VerifyPartitions | EndTransaction | MarkersWritten
