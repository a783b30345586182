"""The interface of the share coordinator's machine: its settings, requests, answers and its command.

Each request is about one share partition. The response waits until the records before it are committed, even if the
request only reads.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from moldau.coordinator.runtime.machine import Waiter
from moldau.coordinator.share_coordinator.state import NO_OFFSET, ShareKey, StateBatch
from moldau.protocol.errors import ErrorCode
from moldau.protocol.late_dataclass import dataclass
from moldau.protocol.late_tuple import NamedTuple

NO_EPOCH: Final = -1
"""The epoch in a request whose sender does not know the epoch. It is not compared with the stored epoch."""


@dataclass(frozen=True, slots=True)
class ShareStateConfig:
    """Kafka's settings of the share coordinator, with the defaults of 4.3.1."""

    state_topic_num_partitions: int = 50
    """share.coordinator.state.topic.num.partitions"""
    state_topic_replication_factor: int = 3
    """share.coordinator.state.topic.replication.factor"""
    state_topic_min_isr: int = 2
    """share.coordinator.state.topic.min.isr"""
    state_topic_segment_bytes: int = 104_857_600
    """share.coordinator.state.topic.segment.bytes"""
    state_topic_compression_codec: int = 0
    """share.coordinator.state.topic.compression.codec"""
    updates_per_snapshot: int = 500
    """share.coordinator.snapshot.update.records.per.snapshot"""
    write_timeout_ms: int = 5_000
    """share.coordinator.write.timeout.ms"""
    load_buffer_size: int = 5_242_880
    """share.coordinator.load.buffer.size"""
    prune_interval_ms: int = 300_000
    """share.coordinator.state.topic.prune.interval.ms"""
    cold_snapshot_interval_ms: int = 300_000
    """share.coordinator.cold.partition.snapshot.interval.ms"""


class InitializeState(NamedTuple):
    """An InitializeShareGroupState of one share partition: the state is replaced by a new state that begins at
    `start_offset`. The answer is a `StateAnswer`."""

    waiter: Waiter
    key: ShareKey
    state_epoch: int
    start_offset: int


class ReadState(NamedTuple):
    """A ReadShareGroupState from the leader of a partition. Its leader epoch is stored if it is later than the stored
    one. The answer is a `StateAnswer`."""

    waiter: Waiter
    key: ShareKey
    leader_epoch: int


class ReadStateSummary(NamedTuple):
    """A ReadShareGroupStateSummary of one share partition. The answer is a `StateAnswer` without batches."""

    waiter: Waiter
    key: ShareKey


class WriteState(NamedTuple):
    """A WriteShareGroupState of one share partition: the batches that changed, and the start offset if it moved. The
    answer is a `StateAnswer`."""

    waiter: Waiter
    key: ShareKey
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]


class DeleteState(NamedTuple):
    """A DeleteShareGroupState of one share partition, which need not have a state. The answer is a `StateAnswer`."""

    waiter: Waiter
    key: ShareKey


class TopicsDeleted(NamedTuple):
    """The event that the topics with these ids do not exist any more. Their state is deleted."""

    topic_ids: frozenset[bytes]


class LogPruned(NamedTuple):
    """The report that `PruneLog` has been performed: the log starts at this offset now."""

    offset: int


class PruneLog(NamedTuple):
    """The command to delete the records below this offset, which are redundant, and to report `LogPruned`."""

    offset: int


class StateAnswer(NamedTuple):
    """The answer to any request. After an error only the error and its message are meaningful."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    """The error message, if it is not the default message of the error code."""
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = NO_OFFSET
    delivery_complete_count: int = -1
    batches: tuple[StateBatch, ...] = ()


StateRequest: TypeAlias = InitializeState | ReadState | ReadStateSummary | WriteState | DeleteState
ShareStateEvent: TypeAlias = StateRequest | TopicsDeleted | LogPruned
