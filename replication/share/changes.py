"""The values of a share partition: the limits of its group, acknowledgements, and changes that are stored or become
dead letters.
"""

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
"""The state after an acknowledgement, by its type: gap, accept, release, reject. Renew (4) prolongs the lock."""
DEAD_LETTER_OUTCOMES: Final = {**OUTCOMES, REJECT: ARCHIVING}
"""The states in a group with a dead-letter queue: a rejected record is ARCHIVING until the queue has it."""


class ShareLimits(NamedTuple):
    """The settings of a group."""

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
        """The state of a record that must not be delivered again."""
        return ARCHIVING if self.has_dead_letters else ARCHIVED


class DeadLetter(NamedTuple):
    """A run of records that the dead-letter queue is to have."""

    first_offset: int
    last_offset: int
    delivery_count: int
    is_rejected: bool
    """Whether a member rejected the records; otherwise they used up their deliveries."""


class StoredBatch(NamedTuple):
    """A run of records with the same state, as the share coordinator stores it."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


class AcknowledgementBatch(NamedTuple):
    """The acknowledgement of a run of records: one type for all of them, or one for each offset."""

    first_offset: int
    last_offset: int
    types: Sequence[int]


class Refusal(NamedTuple):
    """Why an acknowledgement is refused; none of its records changed."""

    error: ErrorCode
    message: str


class Transition(NamedTuple):
    """A change of state that is not stored yet."""

    state: InFlightState
    stored: StoredBatch


class StateWrite(NamedTuple):
    """Changed states that the share coordinator has to store."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StoredBatch, ...]
    transitions: Sequence[Transition]
    """The changes that are undone if the write fails. The release of an expired lock is not among them."""
    dead_letters: tuple[DeadLetter, ...] = ()
    """The dead letters that expired locks have caused. They are written whether this write fails or not."""


class LoadError(Exception):
    """The state that the share coordinator has stored is inconsistent."""


def joined_letters(letters: Iterable[DeadLetter]) -> list[DeadLetter]:
    """Join neighbouring runs with the same delivery count and the same reason."""
    runs: list[DeadLetter] = []
    for each in sorted(letters):
        if runs and runs[-1].last_offset + 1 == each.first_offset and runs[-1][2:] == each[2:]:
            runs[-1] = runs[-1]._replace(last_offset=each.last_offset)
        else:
            runs.append(each)
    return runs
