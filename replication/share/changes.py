"""The values that a share partition takes and gives: the limits of its group, acknowledgements, changes of states to
store, and records to write to the dead-letter queue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from moldau.protocol.errors import ErrorCode
from moldau.protocol.late_tuple import NamedTuple
from moldau.replication.share.in_flight import ACKNOWLEDGED, ARCHIVED, ARCHIVING, AVAILABLE, InFlightState, RecordState

GAP: Final = 0
REJECT: Final = 3
RENEW: Final = 4
OUTCOMES: Final = {GAP: ARCHIVED, 1: ACKNOWLEDGED, 2: AVAILABLE, REJECT: ARCHIVED}
"""The state of a record after an acknowledgement, by the acknowledgement's type: gap (0), accept (1), release (2),
reject (3). The type renew (4) has no entry, because it only prolongs the lock."""
DEAD_LETTER_OUTCOMES: Final = {**OUTCOMES, REJECT: ARCHIVING}
"""`OUTCOMES` in a group with a dead-letter queue: a rejected record is ARCHIVING until it is in the queue."""


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
    """Whether the group has a dead-letter queue: errors.deadletterqueue.topic.name is set, and share.version is 2."""

    @property
    def outcomes(self) -> Mapping[int, RecordState]:
        return DEAD_LETTER_OUTCOMES if self.has_dead_letters else OUTCOMES

    @property
    def used_up(self) -> RecordState:
        """The state of a record that has been delivered as often as allowed and must not be delivered again."""
        return ARCHIVING if self.has_dead_letters else ARCHIVED


class DeadLetter(NamedTuple):
    """Consecutive records that are to be written to the dead-letter queue."""

    first_offset: int
    last_offset: int
    delivery_count: int
    is_rejected: bool
    """Whether a member rejected the records; otherwise they were delivered as often as allowed."""


class StoredBatch(NamedTuple):
    """Consecutive records with the same state, as the share coordinator stores them."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


class AcknowledgementBatch(NamedTuple):
    """The acknowledgement of consecutive records. `types` has one type for all of them, or one for each offset."""

    first_offset: int
    last_offset: int
    types: Sequence[int]


class Refusal(NamedTuple):
    """The error and message of an acknowledgement that is refused. None of its records has changed."""

    error: ErrorCode
    message: str


class Transition(NamedTuple):
    """A change of a record state that the share coordinator has not stored yet."""

    state: InFlightState
    stored: StoredBatch


class StateWrite(NamedTuple):
    """Changed states of a share partition that the share coordinator has to store."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StoredBatch, ...]
    transitions: Sequence[Transition]
    """The changes that are undone if the write fails. The release of records whose lock expired is not among them."""
    dead_letters: tuple[DeadLetter, ...] = ()
    """The records that expired locks make dead letters. They are written to the queue even if this write fails."""


class LoadError(Exception):
    """Raised if the state that the share coordinator has stored is inconsistent."""


def joined_letters(letters: Iterable[DeadLetter]) -> list[DeadLetter]:
    """Join adjacent runs of dead letters that have the same delivery count and the same reason."""
    runs: list[DeadLetter] = []
    for each in sorted(letters):
        if runs and runs[-1].last_offset + 1 == each.first_offset and runs[-1][2:] == each[2:]:
            runs[-1] = runs[-1]._replace(last_offset=each.last_offset)
        else:
            runs.append(each)
    return runs
