"""The delivery state of records in flight: one state for consecutive records together, or one for each offset.

                       acquire                      accept ──▶ ACKNOWLEDGED
    AVAILABLE ──▶ ACQUIRED ──┬── acknowledge ──────┤ reject, gap ──▶ ARCHIVED
        ▲        (a lock with a deadline)          └ release ──▶ AVAILABLE, or ARCHIVED at the delivery count limit
        └──────── release, or the lock's deadline ─┘

In a group with a dead-letter queue (KIP-1191) a record that is rejected, or was delivered as often as allowed, is
ARCHIVING until it is in the queue, and then ARCHIVED.

An acknowledgement changes the state at once, and is undone if the share coordinator does not store the new state. Until
that is known, the transition is open: the records can be neither acquired nor acknowledged again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from enum import IntEnum
from heapq import heappop, heappush
from typing import Final

NO_MEMBER: Final = ""
"""The member id of records that are not acquired."""


class RecordState(IntEnum):
    """The delivery state of a record, with the values of the share coordinator's records."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4


AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED = RecordState
FINAL_STATES: Final = frozenset({ACKNOWLEDGED, ARCHIVED})


class AcquisitionLock:
    """The lock of a member on a run of acquired records. The member must acknowledge them before its deadline."""

    __slots__ = ("deadline_ms", "first_offset", "has_expired", "is_cancelled", "last_offset")

    def __init__(self, first_offset: int, last_offset: int, deadline_ms: int) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.deadline_ms = deadline_ms
        self.is_cancelled = False
        self.has_expired = False
        """Whether the deadline passed during an open transition. If the transition is undone, the records are
        released.
        """


class AcquisitionLocks:
    """The acquisition locks of a share partition, by deadline."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, AcquisitionLock]] = []
        self._order = 0

    def add(self, first_offset: int, last_offset: int, deadline_ms: int) -> AcquisitionLock:
        lock = AcquisitionLock(first_offset, last_offset, deadline_ms)
        self._order += 1
        heappush(self._heap, (deadline_ms, self._order, lock))
        return lock

    def next_deadline_ms(self) -> int | None:
        heap = self._heap
        while heap and heap[0][2].is_cancelled:
            heappop(heap)
        return heap[0][0] if heap else None

    def pop_due(self, now_ms: int) -> AcquisitionLock | None:
        """Remove and return a lock whose deadline has passed; None if there is none."""
        deadline_ms = self.next_deadline_ms()
        return heappop(self._heap)[2] if deadline_ms is not None and deadline_ms <= now_ms else None


class InFlightState:
    """The delivery state of one record, or of all records of a batch."""

    __slots__ = (
        "_before",
        "_is_archived",
        "_limit",
        "_used_up",
        "delivery_count",
        "is_rejected",
        "lock",
        "member_id",
        "split_states",
        "state",
    )

    def __init__(
        self, state: RecordState, delivery_count: int, member_id: str, lock: AcquisitionLock | None = None
    ) -> None:
        self.state = state
        self.delivery_count = delivery_count
        self.member_id = member_id
        self.lock = lock
        self._before: tuple[RecordState, str] | None = None
        self._limit = 0
        """The group's delivery count limit when the open transition began."""
        self._used_up = ARCHIVED
        """The state for records that were delivered as often as allowed, when the open transition began."""
        self._is_archived = False
        self.is_rejected = False
        """Whether a member rejected the records. Records that are ARCHIVING and not rejected were delivered as often as
        allowed.
        """
        self.split_states: dict[int, InFlightState] = {}
        """The states of single offsets into which this state was split during an open transition. Their transitions end
        with this one.
        """

    @property
    def is_final(self) -> bool:
        return self.state in FINAL_STATES

    @property
    def is_in_transition(self) -> bool:
        return self._before is not None

    @property
    def is_acquirable(self) -> bool:
        return self.state is AVAILABLE and self._before is None

    def acquire(self, member_id: str, lock: AcquisitionLock) -> None:
        """Acquire the records for a member, and increase their delivery count. They must be acquirable."""
        self.state = ACQUIRED
        self.delivery_count += 1
        self.member_id = member_id
        self.lock = lock

    def release(self, state: RecordState, delivery_count_max: int, used_up: RecordState) -> bool:
        """End the acquisition, and set the state. If the records were delivered `delivery_count_max` times, the state
        is `used_up` instead of AVAILABLE.

        Returns False without effect during an open transition, because the end of the transition sets the state.
        """
        if self._before is not None:
            return False
        assert self.state is ACQUIRED, "what is acquired is released"
        is_used_up = state is AVAILABLE and self.delivery_count >= delivery_count_max
        self.state = used_up if is_used_up else state
        self.is_rejected = state is ARCHIVING
        self.member_id = NO_MEMBER
        return True

    def begin_transition(self, state: RecordState, delivery_count_max: int, used_up: RecordState) -> bool:
        """Set the state as `release` does, and open a transition. `end_transition` keeps the state if it was stored, or
        else undoes it. Returns what `release` returns.
        """
        before = self.state, self.member_id
        if not self.release(state, delivery_count_max, used_up):
            return False
        self._before, self._limit, self._used_up = before, delivery_count_max, used_up
        return True

    def end_transition(self, *, is_stored: bool) -> None:
        before, self._before = self._before, None
        if is_stored or self._is_archived:
            self.cancel_lock()
            return
        assert before is not None
        self.is_rejected = False
        if self.lock is not None and self.lock.has_expired:
            # DIVERGES: Apache Kafka archives records that used up their deliveries here without a dead letter.
            self.state = self._used_up if self.delivery_count >= self._limit else AVAILABLE
            self.member_id = NO_MEMBER
            self.cancel_lock()
        else:
            self.state, self.member_id = before

    def copy_for_offset(self, lock: AcquisitionLock | None) -> InFlightState:
        """Copy this state for a single record, with its own lock and in the same transition."""
        part = InFlightState(self.state, self.delivery_count, self.member_id, lock)
        part._before, part._limit, part._used_up = self._before, self._limit, self._used_up
        part.is_rejected = self.is_rejected
        return part

    def archive(self) -> None:
        """Set the final state ARCHIVED. The end of an open transition does not change it."""
        self._is_archived = True
        self.state = ARCHIVED
        self.member_id = NO_MEMBER
        self.cancel_lock()

    def cancel_lock(self) -> None:
        if self.lock is not None:
            self.lock.is_cancelled = True
            self.lock = None


class InFlightBatch:
    """Consecutive records that were acquired or loaded together."""

    __slots__ = ("common_state", "first_offset", "first_unfinished_offset", "last_offset", "state_by_offset")

    def __init__(self, first_offset: int, last_offset: int, whole: InFlightState) -> None:
        self.first_offset = first_offset
        self.first_unfinished_offset = first_offset
        """The offset below which all states are final."""
        self.last_offset = last_offset
        self.common_state: InFlightState | None = whole
        """The state of all records; None if each record has its own."""
        self.state_by_offset: dict[int, InFlightState] = {}
        """The state of each record by offset, in offset order; empty while `common_state` is set."""

    @property
    def size(self) -> int:
        return self.last_offset - self.first_offset + 1

    def split_by_offset(self, locks: AcquisitionLocks) -> None:
        """Replace the common state of the batch by a state for each of its offsets. The lock of each has the deadline
        of the common lock, which is cancelled. No effect if the batch is split already.
        """
        whole = self.common_state
        if whole is None:
            return
        for offset in range(self.first_offset, self.last_offset + 1):
            lock = None if whole.lock is None else locks.add(offset, offset, whole.lock.deadline_ms)
            self.state_by_offset[offset] = whole.copy_for_offset(lock)
        whole.cancel_lock()
        if whole.is_in_transition:
            whole.split_states = self.state_by_offset
        self.common_state = None

    def states(self, first_offset: int, last_offset: int) -> Iterator[tuple[int, InFlightState]]:
        """Yield the offsets from `first_offset` to `last_offset` (inclusive) with their states. The batch must have
        been split.
        """
        offsets = self.state_by_offset
        for offset in range(max(first_offset, self.first_offset), min(last_offset, self.last_offset) + 1):
            yield offset, offsets[offset]


class InFlightBatches:
    """The in-flight batches of a share partition, in offset order."""

    __slots__ = ("_by_first", "_firsts")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._by_first: dict[int, InFlightBatch] = {}

    def __len__(self) -> int:
        return len(self._firsts)

    def __iter__(self) -> Iterator[InFlightBatch]:
        return map(self._by_first.__getitem__, [*self._firsts])

    @property
    def first(self) -> InFlightBatch:
        return self._by_first[self._firsts[0]]

    @property
    def last(self) -> InFlightBatch:
        return self._by_first[self._firsts[-1]]

    def add(self, batch: InFlightBatch) -> None:
        assert batch.first_offset not in self._by_first, "batches do not overlap"
        if not self._firsts or batch.first_offset > self._firsts[-1]:
            self._firsts.append(batch.first_offset)
        else:
            insort(self._firsts, batch.first_offset)
        self._by_first[batch.first_offset] = batch

    def last_starting_at_or_before(self, offset: int) -> InFlightBatch | None:
        """The last batch whose first offset is at most `offset`; None if there is none."""
        place = bisect_right(self._firsts, offset)
        return self._by_first[self._firsts[place - 1]] if place else None

    def starting_between(self, first_offset: int, last_offset: int) -> list[InFlightBatch]:
        """The batches whose first offset is in a range (inclusive)."""
        firsts = self._firsts
        return [
            self._by_first[each]
            for each in firsts[bisect_left(firsts, first_offset) : bisect_right(firsts, last_offset)]
        ]

    def remove_before(self, offset: int) -> None:
        """Remove the batches whose first offset is below `offset`."""
        place = bisect_left(self._firsts, offset)
        for first in self._firsts[:place]:
            del self._by_first[first]
        del self._firsts[:place]

    def clear(self) -> None:
        self._firsts.clear()
        self._by_first.clear()
