"""The inputs and outputs of a share partition: limits, acknowledgements, state writes and dead letters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from moldau.protocol.errors import ErrorCode
from moldau.protocol.late_tuple import NamedTuple
from moldau.replication.share.in_flight import ACKNOWLEDGED, ARCHIVED, ARCHIVING, AVAILABLE, InFlightState, RecordState

ACKNOWLEDGE_GAP: Final = 0
ACKNOWLEDGE_REJECT: Final = 3
ACKNOWLEDGE_RENEW: Final = 4
STATE_BY_ACKNOWLEDGE_TYPE: Final = {
    ACKNOWLEDGE_GAP: ARCHIVED,
    1: ACKNOWLEDGED,
    2: AVAILABLE,
    ACKNOWLEDGE_REJECT: ARCHIVED,
}
"""The new state of a record, by the type of its acknowledgement: gap (0), accept (1), release (2), reject (3). Renew
(4) is missing, because it only extends the lock.
"""
STATE_BY_ACKNOWLEDGE_TYPE_WITH_QUEUE: Final = {**STATE_BY_ACKNOWLEDGE_TYPE, ACKNOWLEDGE_REJECT: ARCHIVING}
"""The same for a group with a dead-letter queue: a rejected record is ARCHIVING until it is in the queue."""


class ShareLimits(NamedTuple):
    """The settings of a share group that limit the delivery of its records."""

    delivery_count_max: int
    """group.share.delivery.count.limit, or share.delivery.count.limit of the group"""
    records_max: int
    """group.share.partition.max.record.locks, or share.partition.max.record.locks of the group"""
    lock_duration_ms: int
    """group.share.record.lock.duration.ms, or share.record.lock.duration.ms of the group"""
    is_renewable: bool
    """share.renew.acknowledge.enable of the group"""
    has_dead_letters: bool = False
    """Whether the group has a dead-letter queue (errors.deadletterqueue.topic.name is set, and share.version is 2)."""

    @property
    def state_by_acknowledge_type(self) -> Mapping[int, RecordState]:
        return STATE_BY_ACKNOWLEDGE_TYPE_WITH_QUEUE if self.has_dead_letters else STATE_BY_ACKNOWLEDGE_TYPE

    @property
    def state_after_last_delivery(self) -> RecordState:
        """The state of a record that was delivered as often as allowed."""
        return ARCHIVING if self.has_dead_letters else ARCHIVED


class DeadLetter(NamedTuple):
    """A run of records to write to the dead-letter queue."""

    first_offset: int
    last_offset: int
    delivery_count: int
    is_rejected: bool
    """Whether a member rejected the records. Otherwise they were delivered as often as allowed."""


class StoredBatch(NamedTuple):
    """A run of records with the same state, as the share coordinator stores it."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


class AcknowledgementBatch(NamedTuple):
    """The acknowledgement of a run of records, with one type for all records or one for each."""

    first_offset: int
    last_offset: int
    types: Sequence[int]


class AcknowledgeRefusal(NamedTuple):
    """The error and message of a refused acknowledgement, which changed no record."""

    error: ErrorCode
    message: str


class StateTransition(NamedTuple):
    """A change of a record's state that the share coordinator has not stored yet."""

    state: InFlightState
    stored: StoredBatch


class StateWrite(NamedTuple):
    """Changed states for the share coordinator to store."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StoredBatch, ...]
    transitions: Sequence[StateTransition]
    """The changes to undo if the write fails. A release because of an expired lock is not undone."""
    dead_letters: tuple[DeadLetter, ...] = ()
    """The records that became dead letters when their locks expired. They are written to the queue even if this write
    fails.
    """


class InconsistentShareState(Exception):
    """The state that the share coordinator stored is inconsistent."""


def merge_adjacent_letters(letters: Iterable[DeadLetter]) -> list[DeadLetter]:
    """Merge adjacent dead letters with the same delivery count and reason."""
    runs: list[DeadLetter] = []
    for each in sorted(letters):
        if runs and runs[-1].last_offset + 1 == each.first_offset and runs[-1][2:] == each[2:]:
            runs[-1] = runs[-1]._replace(last_offset=each.last_offset)
        else:
            runs.append(each)
    return runs
