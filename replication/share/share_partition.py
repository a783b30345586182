"""A share partition on its leader: the records of one partition that one share group has in flight.

                    start offset                       end offset
      done          │ in flight: batches of records     │ not delivered yet
    ────────────────┼───────────────────────────────────┼───────────────────▶ offsets
                    └ the first record whose state is not final

    loaded ──▶ acquire ──▶ acknowledge, release, a lock's deadline ──▶ `StateWrite` ──▶ stored, or undone

The share coordinator stores changes of state (`StateWrite`); the shell passes them on, one after the other, and reports
each with `finish_state_write`. Acquisitions are not stored: another leader delivers those records again.

In a group with a dead-letter queue (KIP-1191) a stored change may leave records ARCHIVING: the shell writes them to the
queue (`take_dead_letters`) and reports that with `archive_dead_letter`, which archives them. Another leader finds them
ARCHIVING and writes them again: a record is in the queue at least once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from moldau.protocol.errors import ErrorCode
from moldau.replication.share.changes import (
    ACKNOWLEDGE_RENEW,
    STATE_BY_ACKNOWLEDGE_TYPE,
    AcknowledgementBatch,
    AcknowledgeRefusal,
    DeadLetter,
    InconsistentShareState,
    ShareLimits,
    StateTransition,
    StateWrite,
    StoredBatch,
    merge_adjacent_letters,
)
from moldau.replication.share.in_flight import (
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    FINAL_STATES,
    NO_MEMBER,
    AcquisitionLocks,
    InFlightBatch,
    InFlightBatches,
    InFlightState,
    RecordState,
)

NO_OFFSET: Final = -1


class UndeliveredRange:
    """A range of a loaded state in which some offsets are in no batch: they were not delivered, or acquired and not
    acknowledged.
    """

    __slots__ = ("end_offset", "start_offset")

    def __init__(self, start_offset: int, end_offset: int) -> None:
        self.start_offset = start_offset
        self.end_offset = end_offset


class SharePartition:
    """The in-flight records of one partition and one share group. `limits` returns the group's current limits."""

    def __init__(self, leader_epoch: int, limits: Callable[[], ShareLimits]) -> None:
        self.leader_epoch = leader_epoch
        self.limits = limits
        self.state_epoch = 0
        self.start_offset = 0
        self.end_offset = 0
        """The last offset in flight (inclusive); the next offset to deliver if nothing is in flight."""
        self.delivery_complete_count = 0
        """The number of in-flight records with a final state, at or after the start offset."""
        self.batches = InFlightBatches()
        self.locks = AcquisitionLocks()
        self.may_have_available_before_end = False
        """Whether a record before the end offset may be available, because it was released or is in the undelivered
        range.
        """
        self._gap: UndeliveredRange | None = None
        self._dead_letters: list[DeadLetter] = []
        """The dead letters that `take_dead_letters` has not returned yet."""

    # Loading

    def load(self, state_epoch: int, start_offset: int, stored: Iterable[StoredBatch]) -> None:
        """Load the state that the share coordinator stored. Raises `InconsistentShareState`."""
        self.state_epoch, self.start_offset = state_epoch, start_offset
        gap_offset, next_offset = NO_OFFSET, start_offset
        for first, last, state_id, count in stored:
            if first < start_offset or last < first:
                raise InconsistentShareState(f"a batch from {first} to {last} after the start offset {start_offset}")
            if gap_offset == NO_OFFSET and first > next_offset:
                gap_offset = next_offset
            next_offset = last + 1
            state = RecordState(state_id)
            self.batches.add(InFlightBatch(first, last, InFlightState(state, count, NO_MEMBER)))
            if state in FINAL_STATES:
                self.delivery_complete_count += last - first + 1
            elif state is ARCHIVING:
                # The state does not say why; as Apache Kafka, the count decides.
                is_rejected = count < self.limits().delivery_count_max
                self._dead_letters.append(DeadLetter(first, last, count, is_rejected))
        if not self.batches:
            self.end_offset = start_offset
            return
        self.may_have_available_before_end = True
        self.end_offset = self.batches.last.last_offset
        if gap_offset != NO_OFFSET:
            self._gap = UndeliveredRange(gap_offset, self.end_offset)
        self.advance_start_offset()

    # What to deliver next

    @property
    def undelivered_range(self) -> UndeliveredRange | None:
        """The undelivered range of the loaded state; None once records after it were delivered."""
        gap = self._gap
        return gap if gap is not None and gap.end_offset == self.end_offset else None

    @property
    def records_count(self) -> int:
        """The number of offsets in flight."""
        return self.end_offset - self.start_offset + 1 if self.batches else 0

    @property
    def can_acquire(self) -> bool:
        """Whether records can be acquired: some before the end offset are available, or more may be in flight."""
        return self.next_fetch_offset() != self.end_offset + 1 or self.records_count < self.limits().records_max

    def next_fetch_offset(self) -> int:
        """The offset to fetch from: the first available record, or the one after the end."""
        batches = self.batches
        if not batches or self.start_offset > batches.last.last_offset:
            self.may_have_available_before_end = False
            return self.end_offset
        if self.may_have_available_before_end:
            found = self._first_available()
            if found != NO_OFFSET:
                return found
            self.may_have_available_before_end = False
        return self.end_offset + 1

    def _first_available(self) -> int:
        gap = self.undelivered_range
        gap_offset = gap.start_offset if gap is not None else NO_OFFSET
        for batch in self.batches:
            if gap is not None:
                if batch.first_offset > gap_offset:
                    return gap_offset
                gap_offset = max(batch.last_offset + 1, gap_offset)
            if batch.common_state is not None:
                if batch.common_state.is_acquirable:
                    return batch.first_offset
                continue
            for offset, state in batch.state_by_offset.items():
                if state.is_acquirable:
                    return offset
        return NO_OFFSET

    def note_gap_delivered(self, next_offset: int) -> None:
        """Record that the undelivered range was delivered up to this offset."""
        gap = self._gap
        if gap is None:
            return
        if gap.end_offset == self.end_offset and next_offset <= gap.end_offset:
            gap.start_offset = max(gap.start_offset, next_offset)
        else:
            self._gap = None

    # Acknowledging

    def acknowledge(
        self, member_id: str, batches: Iterable[AcknowledgementBatch], now_ms: int
    ) -> StateWrite | AcknowledgeRefusal | None:
        """Acknowledge records that the member acquired: all of them, or none. Returns the write, None if there is
        nothing to store, or the refusal.
        """
        acknowledging = AcknowledgementInProgress(self, member_id, now_ms)
        for batch in batches:
            refusal = acknowledging.add(batch)
            if refusal is not None:
                self._undo(acknowledging.transitions)
                return refusal
        return self._write(acknowledging.transitions)

    def release_acquired(self, member_id: str) -> StateWrite | None:
        """Release the records that the member acquired, because its session ends. Returns the write, or None."""
        transitions: list[StateTransition] = []
        limits = self.limits()
        for batch in self.batches:
            whole = batch.common_state
            if whole is not None and whole.member_id == member_id and whole.state is ACQUIRED:
                if batch.first_offset < self.start_offset <= batch.last_offset:
                    batch.split_by_offset(self.locks)
                else:
                    outcome = ARCHIVED if batch.last_offset < self.start_offset else AVAILABLE
                    self.begin_transition(batch, whole, outcome, limits, transitions)
            for offset, state in batch.state_by_offset.items():
                if state.member_id == member_id and state.state is ACQUIRED:
                    outcome = ARCHIVED if offset < self.start_offset else AVAILABLE
                    self.begin_offset_transition(offset, state, outcome, limits, transitions)
        return self._write(transitions)

    def begin_transition(
        self,
        batch: InFlightBatch,
        whole: InFlightState,
        outcome: RecordState,
        limits: ShareLimits,
        transitions: list[StateTransition],
    ) -> None:
        if whole.begin_transition(outcome, limits.delivery_count_max, limits.state_after_last_delivery):
            stored = StoredBatch(batch.first_offset, batch.last_offset, whole.state, whole.delivery_count)
            transitions.append(StateTransition(whole, stored))
            if whole.is_final:
                self.delivery_complete_count += self.count_offsets(batch.first_offset, batch.last_offset)

    def begin_offset_transition(
        self,
        offset: int,
        state: InFlightState,
        outcome: RecordState,
        limits: ShareLimits,
        transitions: list[StateTransition],
    ) -> None:
        if state.begin_transition(outcome, limits.delivery_count_max, limits.state_after_last_delivery):
            transitions.append(StateTransition(state, StoredBatch(offset, offset, state.state, state.delivery_count)))
            if state.is_final:
                self.delivery_complete_count += self.count_offsets(offset, offset)

    def count_offsets(self, first_offset: int, last_offset: int) -> int:
        """The number of offsets of a range (inclusive) at or after the start offset."""
        return max(last_offset - max(self.start_offset, first_offset) + 1, 0)

    def _write(self, transitions: Sequence[StateTransition]) -> StateWrite | None:
        return self._write_of([each.stored for each in transitions], transitions) if transitions else None

    def _write_of(
        self,
        batches: Iterable[StoredBatch],
        transitions: Sequence[StateTransition],
        dead_letters: Iterable[DeadLetter] = (),
    ) -> StateWrite:
        return StateWrite(
            self.state_epoch,
            self.leader_epoch,
            self.start_offset,
            self.delivery_complete_count,
            tuple(batches),
            transitions,
            tuple(dead_letters),
        )

    def finish_state_write(self, write: StateWrite, *, is_stored: bool) -> bool:
        """Keep the changes of a stored write, or undo them. Returns whether the start offset moved."""
        self._dead_letters.extend(write.dead_letters)
        if not is_stored:
            # What an expired lock released stays released: it is stored with a later change, or delivered again.
            self._undo(write.transitions)
            return self.advance_start_offset()
        for state, _, _ in self._ended(write.transitions, is_stored=True):
            if state.state is AVAILABLE:
                self.may_have_available_before_end = True
        return self.advance_start_offset()

    def _undo(self, transitions: Iterable[StateTransition]) -> None:
        for state, (first, last, was_state, _), in_part in self._ended(transitions, is_stored=False):
            if state.state is AVAILABLE:
                self.may_have_available_before_end = True
            if was_state in FINAL_STATES and not state.is_final:
                self.delivery_complete_count -= (
                    self.count_offsets(in_part, in_part) if in_part >= 0 else self.count_offsets(first, last)
                )

    def _ended(
        self, transitions: Iterable[StateTransition], *, is_stored: bool
    ) -> list[tuple[InFlightState, StoredBatch, int]]:
        """End transitions. Returns each state with the batch to store, and with its offset if the batch was split
        meanwhile (else `NO_OFFSET`).
        """
        ended: list[tuple[InFlightState, StoredBatch, int]] = []
        for whole, stored in transitions:
            parts = whole.split_states or {NO_OFFSET: whole}
            for offset, state in parts.items():
                state.end_transition(is_stored=is_stored)
                ended.append((state, stored, offset))
                if state.state is ARCHIVING:
                    place = (stored.first_offset, stored.last_offset) if offset == NO_OFFSET else (offset, offset)
                    self._dead_letters.append(DeadLetter(*place, state.delivery_count, state.is_rejected))
            whole.split_states = {}
        if self.batches and self.batches.first.first_offset < self.start_offset:
            # DIVERGES: in Apache Kafka a record that was released while the log start offset moved past it stays
            # available, and is fetched in vain again and again.
            self.archive_records(
                self.batches.starting_between(0, self.start_offset - 1), 0, self.start_offset - 1, AVAILABLE
            )
        return ended

    # Dead letters

    def take_dead_letters(self) -> list[DeadLetter]:
        """Return the dead letters to write now. The caller reports each one with `archive_dead_letter`."""
        taken, self._dead_letters = self._dead_letters, []
        return merge_adjacent_letters(taken)

    def archive_dead_letter(self, letter: DeadLetter) -> StateWrite:
        """Archive the records of a dead letter that is in the queue or cannot be written to it. Returns the write."""
        first = self.batches.last_starting_at_or_before(letter.first_offset)
        found = self.batches.starting_between(
            letter.first_offset if first is None else first.first_offset, letter.last_offset
        )
        archived = self.archive_records(found, letter.first_offset, letter.last_offset, ARCHIVING)
        assert archived is not None, "records stay in their batches until they are archived"
        self.delivery_complete_count += self.count_offsets(letter.first_offset, letter.last_offset)
        stored = StoredBatch(letter.first_offset, letter.last_offset, ARCHIVED, letter.delivery_count)
        return self._write_of([stored], ())

    # Locks

    def next_deadline_ms(self) -> int | None:
        """The deadline (ms) of the lock that expires next; None without locks."""
        return self.locks.next_deadline_ms()

    def expire_locks(self, now_ms: int) -> StateWrite | None:
        """Release the records of expired locks. Returns the write; None if no lock has expired."""
        released: list[StoredBatch] = []
        letters: list[DeadLetter] = []
        limits = self.limits()
        while (lock := self.locks.pop_due(now_ms)) is not None:
            lock.has_expired = True
            first = self.batches.last_starting_at_or_before(lock.first_offset)
            if first is None:
                continue
            for batch in self.batches.starting_between(first.first_offset, lock.last_offset):
                whole = batch.common_state
                if whole is not None and whole.lock is lock:
                    if whole.state is ACQUIRED and batch.first_offset < self.start_offset <= batch.last_offset:
                        batch.split_by_offset(self.locks)  # The locks of its records are due too.
                        continue
                    self._release_expired(batch.first_offset, batch.last_offset, whole, limits, released, letters)
                for offset, state in batch.states(lock.first_offset, lock.last_offset) if whole is None else ():
                    if state.lock is lock:
                        self._release_expired(offset, offset, state, limits, released, letters)
        return self._write_of(released, (), letters) if released else None

    def _release_expired(
        self,
        first: int,
        last: int,
        state: InFlightState,
        limits: ShareLimits,
        released: list[StoredBatch],
        letters: list[DeadLetter],
    ) -> None:
        if state.is_in_transition or state.state is not ACQUIRED:
            return
        outcome = ARCHIVED if last < self.start_offset else AVAILABLE
        state.release(outcome, limits.delivery_count_max, limits.state_after_last_delivery)
        state.cancel_lock()
        released.append(StoredBatch(first, last, state.state, state.delivery_count))
        if state.state is AVAILABLE:
            self.may_have_available_before_end = True
        elif state.state is ARCHIVING:
            letters.append(DeadLetter(first, last, state.delivery_count, is_rejected=False))
        else:
            self.delivery_complete_count += self.count_offsets(first, last)

    # The start offset

    def advance_start_offset(self) -> bool:
        """Move the start offset past the records with a final state, and remove their batches. Returns whether it
        moved.
        """
        if not self._can_advance():
            return False
        last_final, final_count = self._final_prefix()
        if last_final == NO_OFFSET:
            return False
        last_offset = self.batches.last.last_offset
        if last_final == last_offset:
            # DIVERGES: in Apache Kafka the start offset goes back here if the log start offset has passed the batches.
            self.start_offset = self.end_offset = max(self.start_offset, last_offset + 1)
            self.batches.clear()
            self.delivery_complete_count = 0
            return True
        batch = self.batches.last_starting_at_or_before(last_final)
        assert batch is not None
        if last_final == batch.last_offset:
            (following, *_) = self.batches.starting_between(last_final + 1, last_offset)
            self.start_offset = max(self.start_offset, following.first_offset)
            gap = self.undelivered_range
            if gap is not None:
                self.start_offset = min(gap.start_offset, self.start_offset)
            self.batches.remove_before(following.first_offset)
        else:
            self.start_offset = max(self.start_offset, last_final + 1)
            batch.first_unfinished_offset = last_final + 1
            self.batches.remove_before(batch.first_offset)
        self.delivery_complete_count -= final_count
        return True

    def skip_offsets_without_records(self, first_offset: int, end_offset: int) -> None:
        """Move the start offset out of a range in which the log has no records, to the next batch in the range or to
        its end. DIVERGES: in Apache Kafka it stays. Once the maximum number of records is in flight after it, nothing
        more is acquired.
        """
        start = self.start_offset
        floor = self.batches.last_starting_at_or_before(start)
        if first_offset <= start < end_offset and (floor is None or floor.last_offset < start):
            following = self.batches.starting_between(start, end_offset)
            self.start_offset = following[0].first_offset if following else end_offset

    def _can_advance(self) -> bool:
        batch = self.batches.last_starting_at_or_before(self.start_offset)
        if batch is None:
            return False
        state = batch.common_state
        if state is None:
            state = batch.state_by_offset[min(self.start_offset, batch.last_offset)]
        return state.is_final and not state.is_in_transition

    def _final_prefix(self) -> tuple[int, int]:
        """The last offset up to which all states are final (`NO_OFFSET` if there is none), and the number of offsets
        from the start offset to it.
        """
        last_final, count, gap = NO_OFFSET, 0, self.undelivered_range
        for batch in self.batches:
            if gap is not None and batch.last_offset >= gap.start_offset:
                break
            whole = batch.common_state
            if whole is not None:
                if whole.is_in_transition or not whole.is_final:
                    break
                last_final = batch.last_offset
                count += self.count_offsets(batch.first_offset, batch.last_offset)
                continue
            for offset, state in batch.states(batch.first_unfinished_offset, batch.last_offset):
                if state.is_in_transition or not state.is_final:
                    return last_final, count
                last_final = offset
                count += self.count_offsets(offset, offset)
        return last_final, count

    def on_log_start_moved(self, log_start_offset: int) -> None:
        """Handle a move of the log start offset: archive the available records before it, and move the start offset.
        Acquired records stay in flight until they are acknowledged or their locks expire.
        """
        if log_start_offset <= self.start_offset:
            return
        if not self.batches:
            self.start_offset = self.end_offset = log_start_offset
            self.delivery_complete_count = 0
            return
        self.delivery_complete_count -= self._count_final_before(log_start_offset)
        every = [*self.batches]
        if self.archive_records(every, self.start_offset, log_start_offset - 1, AVAILABLE) is not None:
            self.may_have_available_before_end = True
        self.start_offset = log_start_offset
        self.end_offset = max(self.end_offset, self.start_offset)
        if self._gap is not None:
            # DIVERGES: Apache Kafka keeps the gap, and fetches from below the log start offset again and again.
            self._gap.start_offset = max(self._gap.start_offset, log_start_offset)
        # DIVERGES: Apache Kafka leaves the start offset before records that are all final. If they are as many as may
        # be in flight, nothing is acquired any more.
        self.advance_start_offset()

    def _count_final_before(self, end_offset: int) -> int:
        count = 0
        for batch in self.batches.starting_between(0, end_offset - 1):
            if batch.common_state is None:
                states = batch.states(self.start_offset, end_offset - 1)
                count += sum(state.is_final for _, state in states)
            elif batch.common_state.is_final:
                count += self.count_offsets(batch.first_offset, min(batch.last_offset, end_offset - 1))
        return count

    def archive_records(
        self, batches: Iterable[InFlightBatch], first_offset: int, last_offset: int, state_before: RecordState
    ) -> int | None:
        """Archive the records of a range that have the state `state_before`, which must not be final. Returns their
        number; None if there are none.
        """
        count = 0
        for batch in batches:
            if batch.first_offset > last_offset:
                break
            is_within = batch.first_offset >= first_offset and batch.last_offset <= last_offset
            if batch.common_state is not None:
                if batch.common_state.state is not state_before:
                    continue
                if is_within:
                    batch.common_state.archive()
                    count += batch.size
                    continue
                batch.split_by_offset(self.locks)
            for _, state in batch.states(max(first_offset, batch.first_unfinished_offset), last_offset):
                if state.state is state_before:
                    state.archive()
                    count += 1
        return count or None


class AcknowledgementInProgress:
    """Applies the acknowledgements of one member batch by batch, and keeps the transitions that it opened."""

    __slots__ = ("_limits", "_locks_until_ms", "_member_id", "_partition", "transitions")

    def __init__(self, partition: SharePartition, member_id: str, now_ms: int) -> None:
        self._partition = partition
        self._member_id = member_id
        self._limits = partition.limits()
        self._locks_until_ms = now_ms + self._limits.lock_duration_ms
        self.transitions: list[StateTransition] = []

    def add(self, request: AcknowledgementBatch) -> AcknowledgeRefusal | None:
        partition = self._partition
        if any(each not in STATE_BY_ACKNOWLEDGE_TYPE and each != ACKNOWLEDGE_RENEW for each in request.types):
            types = "[" + ", ".join(map(str, request.types)) + "]"
            return AcknowledgeRefusal(ErrorCode.INVALID_REQUEST, f"Invalid acknowledge type: {types}")
        if request.last_offset < partition.start_offset:
            return None  # The records were archived: the log start offset moved past them.
        first = partition.batches.last_starting_at_or_before(request.first_offset)
        if first is None and request.first_offset < partition.start_offset:
            first = partition.batches.last_starting_at_or_before(partition.start_offset)
        if first is None:
            return AcknowledgeRefusal(ErrorCode.INVALID_RECORD_STATE, BATCH_NOT_FOUND)
        found = partition.batches.starting_between(first.first_offset, request.last_offset)
        if found[-1].last_offset < request.first_offset:
            return AcknowledgeRefusal(ErrorCode.INVALID_REQUEST, FIRST_OFFSET_NOT_FOUND)
        if request.last_offset > found[-1].last_offset:
            return AcknowledgeRefusal(ErrorCode.INVALID_REQUEST, LAST_OFFSET_NOT_FOUND)
        for batch in found:
            if batch.last_offset >= partition.start_offset:
                refusal = self._batch(request, batch)
                if refusal is not None:
                    return refusal
        return None

    def _batch(self, request: AcknowledgementBatch, batch: InFlightBatch) -> AcknowledgeRefusal | None:
        whole = batch.common_state
        if whole is not None:
            if whole.member_id == NO_MEMBER:
                return invalid_record_state_refusal(
                    "The batch cannot be acknowledged. The batch is not in the acquired state."
                )
            if whole.member_id != self._member_id:
                return invalid_record_state_refusal("Member is not the owner of batch record")
            assert whole.state is ACQUIRED and not whole.is_in_transition, "only acquired records have a member"
            is_within = request.first_offset <= batch.first_offset and batch.last_offset <= request.last_offset
            if is_within and len(request.types) == 1 and self._partition.start_offset <= batch.first_offset:
                return self._whole(request.types[0], batch, whole)
            batch.split_by_offset(self._partition.locks)
        return self._offsets(request, batch)

    def _whole(self, kind: int, batch: InFlightBatch, whole: InFlightState) -> AcknowledgeRefusal | None:
        if kind == ACKNOWLEDGE_RENEW:
            return self._renew(batch.first_offset, batch.last_offset, whole)
        limits = self._limits
        self._partition.begin_transition(batch, whole, limits.state_by_acknowledge_type[kind], limits, self.transitions)
        return None

    def _offsets(self, request: AcknowledgementBatch, batch: InFlightBatch) -> AcknowledgeRefusal | None:
        first = max(request.first_offset, self._partition.start_offset)
        types, limits = request.types, self._limits
        for offset, state in batch.states(first, request.last_offset):
            if state.state is not ACQUIRED:
                return invalid_record_state_refusal("The offset cannot be acknowledged. The offset is not acquired.")
            if state.member_id != self._member_id:
                return invalid_record_state_refusal("Member is not the owner of offset")
            kind = types[offset - request.first_offset] if len(types) > 1 else types[0]
            if kind == ACKNOWLEDGE_RENEW:
                refusal = self._renew(offset, offset, state)
                if refusal is not None:
                    return refusal
            else:
                outcome = limits.state_by_acknowledge_type[kind]
                self._partition.begin_offset_transition(offset, state, outcome, limits, self.transitions)
        return None

    def _renew(self, first_offset: int, last_offset: int, state: InFlightState) -> AcknowledgeRefusal | None:
        if not self._limits.is_renewable:
            return invalid_record_state_refusal("Renewing acquisition locks is not enabled for the group.")
        state.cancel_lock()
        state.lock = self._partition.locks.add(first_offset, last_offset, self._locks_until_ms)
        return None


BATCH_NOT_FOUND: Final = "Batch record not found. The request batch offsets are not found in the cache."
FIRST_OFFSET_NOT_FOUND: Final = "Batch record not found. The first offset in request is past acquired records."
LAST_OFFSET_NOT_FOUND: Final = "Batch record not found. The last offset in request is past acquired records."


def invalid_record_state_refusal(message: str) -> AcknowledgeRefusal:
    return AcknowledgeRefusal(ErrorCode.INVALID_RECORD_STATE, message)
