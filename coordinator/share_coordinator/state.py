"""The delivery state of one share partition, and how changes of it are merged.

snapshot ◀── update ◀── update …       the state is the last snapshot with the later updates merged in
   │                                    batches: (first offset, last offset, delivery state, delivery count)
   └── epoch, start offset              offsets from the start offset on that are in no batch were never delivered
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from moldau.protocol.late_tuple import NamedTuple

NO_OFFSET: Final = -1
"""The start offset of a state that no leader has written yet. In a change it means that the start offset does not
change."""


class ShareKey(NamedTuple):
    """The key of a share partition."""

    group_id: str
    topic_id: bytes
    """16 bytes"""
    partition: int


class StateBatch(NamedTuple):
    """Consecutive records with the same delivery state: 0 available, 2 acknowledged, 4 archived."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


class ShareState(NamedTuple):
    """The delivery state of a share partition, with the fields of a snapshot record."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    """The number of records from the start offset on that are in a final state; -1 if it is not known."""
    batches: tuple[StateBatch, ...] = ()
    create_ms: int = 0
    """The wall-clock time (ms) of the last change of the state."""
    write_ms: int = 0
    """The wall-clock time (ms) at which the record was written. It is later than `create_ms` if the record is a
    snapshot of a state that did not change."""


class StateUpdate(NamedTuple):
    """A change of a share partition's state since its last snapshot, with the fields of an update record."""

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...] = ()

    def as_state(self) -> ShareState:
        """The state that this update alone gives. It is used if the log has no snapshot before the update, because the
        first records of the log are lost."""
        return ShareState(
            self.snapshot_epoch, 0, self.leader_epoch, self.start_offset, self.delivery_complete_count, self.batches
        )


def updated_state(state: ShareState, update: StateUpdate) -> ShareState:
    """The state after an update is merged into it. The update does not change the state epoch and the times."""
    start_offset = state.start_offset if update.start_offset == NO_OFFSET else update.start_offset
    return state._replace(
        start_offset=start_offset,
        delivery_complete_count=update.delivery_complete_count,
        leader_epoch=state.leader_epoch if update.leader_epoch == -1 else update.leader_epoch,
        batches=combined_batches(state.batches, update.batches, start_offset),
    )


def combined_batches(
    before: Iterable[StateBatch], after: Iterable[StateBatch], start_offset: int
) -> tuple[StateBatch, ...]:
    """Merge batches of an earlier state and of a later change. The result is in the order of offsets, without overlaps
    and without offsets below the start offset.

    If batches overlap, the higher (delivery count, delivery state) counts: a record's delivery count never falls, and
    its final state has the highest number. Batches with the same state that overlap or touch become one.
    """
    batches = pruned_batches([*before, *after], start_offset)
    return tuple(batches) if len(batches) < 2 else tuple(merged_batches(batches))


def pruned_batches(batches: Sequence[StateBatch], start_offset: int) -> list[StateBatch]:
    if start_offset == NO_OFFSET:
        return list(batches)
    return [
        batch if batch.first_offset >= start_offset else batch._replace(first_offset=start_offset)
        for batch in batches
        if batch.last_offset >= start_offset
    ]


def merged_batches(batches: Iterable[StateBatch]) -> list[StateBatch]:
    """Merge batches as Apache Kafka does: compare the two lowest batches, and if they overlap, or touch and have the
    same state, replace them by the result of merging the two. Batches below the pair are not compared with this result.
    """
    left = [(each.first_offset, each.last_offset, each.delivery_count, each.delivery_state) for each in batches]
    heapify(left)
    result = []
    lower = heappop(left)
    while left:
        upper = heappop(left)
        is_same = lower[2:] == upper[2:]
        if upper[0] <= lower[1] or (is_same and lower[1] + 1 == upper[0]):
            for rest in resolve_overlap(lower, upper):
                heappush(left, rest)
            lower = heappop(left)
        else:
            result.append(lower)
            lower = upper
    result.append(lower)
    return [StateBatch(first, last, state, count) for first, last, count, state in result]


def resolve_overlap(
    lower: tuple[int, int, int, int], upper: tuple[int, int, int, int]
) -> list[tuple[int, int, int, int]]:
    """The batches that replace two batches which overlap or touch. Each tuple is (first offset, last offset, delivery
    count, delivery state)."""
    state, other = lower[2:], upper[2:]
    if state == other:
        return [(lower[0], max(lower[1], upper[1]), *state)]
    if other < state:
        return [lower] if upper[1] <= lower[1] else [lower, (lower[1] + 1, upper[1], *other)]
    rest = [upper]
    if upper[0] > lower[0]:
        rest.append((lower[0], upper[0] - 1, *state))
    if upper[1] < lower[1]:
        rest.append((upper[1] + 1, lower[1], *state))
    return rest
