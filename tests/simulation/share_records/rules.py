"""What must hold of the records of a share group: every record is acknowledged or delivered again, delivery counts are
right, locks end, and what was acknowledged stays so.

A *life* is a share partition on one leader, from its load until its end. A *generation* is the state from one
initialization to the next, which an administrator causes: its number is the state epoch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from moldau.broker.share_partitions.runner import SharePartitionRunner
from moldau.coordinator.share_coordinator.events import (
    InitializeState,
    ReadState,
    StateAnswer,
    StateRequest,
    WriteState,
)
from moldau.protocol.errors import ErrorCode
from moldau.replication.share.acquisition import AcquiredRecords
from moldau.replication.share.changes import ACKNOWLEDGE_GAP, ACKNOWLEDGE_RENEW
from moldau.replication.share.in_flight import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    FINAL_STATES,
    InFlightState,
)
from tests.simulation.share_records.topic_log import TopicLog
from tests.support.drawn_steps import Violation

ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3
FINISHING: Final = {ACCEPT: ACKNOWLEDGED, REJECT: ARCHIVED, ACKNOWLEDGE_GAP: ARCHIVED}


class Stored(NamedTuple):
    """What is stored of a record."""

    deliveries: int
    state: int


NEVER: Final = Stored(0, 0)


@dataclass(slots=True)
class Generation:
    """From one initialization of the state to the next."""

    start_offset: int
    """The first offset that it delivers."""
    stored: dict[int, Stored] = field(default_factory=dict)
    """What the share coordinator has confirmed, by offset: the highest."""
    asked: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    """The highest delivery count in any write that was sent."""
    asked_finals: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    """The final states in any write that was sent: one may be stored of which the leader heard that it was not."""
    accepted: dict[int, int] = field(default_factory=dict)
    """The moment at which the acceptance of an offset was answered."""
    excused: set[int] = field(default_factory=set)
    """The offsets that may end without an acceptance: rejected, delivered as often as the group allows."""
    lettered: set[int] = field(default_factory=set)
    """The offsets that the dead-letter queue has."""


@dataclass(slots=True, eq=False)
class Life:
    """What a share partition has told, since it was loaded."""

    shared: SharePartitionRunner
    read_moment: int = -1
    """When its read of the state came to the coordinator last."""
    base: dict[int, Stored] = field(default_factory=dict)
    """What was confirmed then."""
    counts: dict[int, int] = field(default_factory=dict)
    """The last delivery count of each offset."""
    held: dict[int, tuple[str, int]] = field(default_factory=dict)
    """The member that holds an offset, and the end of its lock (ms)."""
    done: set[int] = field(default_factory=set)
    """The offsets whose acceptance or rejection it has answered."""
    lettered: set[int] = field(default_factory=set)
    """The offsets that it has written to the dead-letter queue."""
    start_offset: int = -1
    """The highest start offset that was seen."""


class Rules:
    def __init__(self, log: TopicLog, limits_max: int) -> None:
        self.log = log
        self.deliveries_max = limits_max
        self.generations: dict[int, Generation] = {}
        self.moment = 0
        self.delivered_count = 0
        self.gaps: set[int] = set()
        """The offsets that a member ever acknowledged as a gap: they need no dead letter."""
        self._lives: dict[SharePartitionRunner, Life] = {}
        self._leader_epoch = -1
        """The highest leader epoch that the coordinator has confirmed."""
        self._state_epoch = -1
        self._epochs: dict[int, tuple[int, int]] = {}
        """The leader epoch and the state epoch that were confirmed when a request came, by its identity."""

    def now(self) -> int:
        """A moment: they grow."""
        self.moment += 1
        return self.moment

    def life_of(self, shared: SharePartitionRunner | None) -> Life | None:
        if shared is None:
            return None
        if shared not in self._lives:
            self._lives[shared] = Life(shared)
        return self._lives[shared]

    # The share coordinator

    def asked(self, life: Life | None, request: StateRequest) -> None:
        self._epochs[id(request)] = self._leader_epoch, self._state_epoch
        if isinstance(request, ReadState) and life is not None:
            life.read_moment = self.now()
            current = self.generations.get(self._state_epoch)
            life.base = dict(current.stored) if current is not None else {}
        if isinstance(request, WriteState):
            generation = self.generations[request.state_epoch]
            for first, last, state, count in request.batches:
                for offset in range(first, last + 1):
                    generation.asked[offset] = max(generation.asked[offset], count)
                    if state in FINAL_STATES:
                        generation.asked_finals[offset].add(state)

    def answered(self, life: Life | None, request: StateRequest, answer: StateAnswer) -> None:
        leader_epoch, state_epoch = self._epochs.pop(id(request), (-1, -1))
        if answer.error is not ErrorCode.NONE:
            return
        if isinstance(request, InitializeState):
            self._state_epoch = max(self._state_epoch, request.state_epoch)
        elif isinstance(request, ReadState):
            if request.leader_epoch < leader_epoch:
                raise Violation(f"epoch {request.leader_epoch} reads after {leader_epoch} has")
            self._leader_epoch = max(self._leader_epoch, request.leader_epoch)
            if life is not None:
                self._read(life, answer)
        elif isinstance(request, WriteState):
            if request.leader_epoch < leader_epoch or request.state_epoch < state_epoch:
                raise Violation(f"{request} is stored, after epochs {leader_epoch} of the leader, {state_epoch}")
            self._stored(request)

    def _read(self, life: Life, answer: StateAnswer) -> None:
        """What was confirmed before is there; there may be more, of writes whose answer was another one."""
        generation = self.generations[answer.state_epoch]
        told = {
            offset: Stored(count, state)
            for first, last, state, count in answer.batches
            for offset in range(first, last + 1)
        }
        for offset, stored in life.base.items():
            if offset >= answer.start_offset and told.get(offset, NEVER) < stored:
                raise Violation(f"{offset} was stored as {stored}, and is read as {told.get(offset)}")
        self._store(generation, told)

    def _store(self, generation: Generation, told: Mapping[int, Stored]) -> None:
        for offset, stored in told.items():
            generation.stored[offset] = max(generation.stored.get(offset, NEVER), stored)

    def _stored(self, request: WriteState) -> None:
        for first, last, state, count in request.batches:
            told = dict.fromkeys(range(first, last + 1), Stored(count, state))
            self._store(self.generations[request.state_epoch], told)

    # Deliveries

    def delivered(
        self, life: Life, member_id: str, acquired: Iterable[AcquiredRecords], now_ms: int, lock_ms: int
    ) -> None:
        generation = self.generations[life.shared.machine.state_epoch]
        for first, last, count in acquired:
            for offset in range(first, last + 1):
                self.delivered_count += 1
                self._may_be_delivered(life, generation, offset, member_id, now_ms)
                self._has_right_count(life, generation, offset, count)
                life.counts[offset] = count
                life.held[offset] = member_id, now_ms + lock_ms
                if count >= self.deliveries_max or offset in self.log.markers:
                    generation.excused.add(offset)

    def _may_be_delivered(self, life: Life, generation: Generation, offset: int, member_id: str, now_ms: int) -> None:
        holder, until_ms = life.held.get(offset, ("", 0))
        if until_ms > now_ms:
            raise Violation(f"{offset} goes to {member_id}, and {holder} has a lock until {until_ms}, now {now_ms}")
        was_final = life.base.get(offset, NEVER).state in FINAL_STATES
        if offset in life.done or was_final or generation.accepted.get(offset, self.moment) < life.read_moment:
            raise Violation(f"{offset} is delivered, and is stored as {generation.stored[offset]}")
        if offset < generation.start_offset:
            raise Violation(f"{offset} is delivered, and the group begins at {generation.start_offset}")

    def _has_right_count(self, life: Life, generation: Generation, offset: int, count: int) -> None:
        if count > self.deliveries_max:
            raise Violation(f"{offset} is delivered for the {count}th time of {self.deliveries_max}")
        if offset in life.counts:
            if count != life.counts[offset] + 1:
                raise Violation(f"the delivery count of {offset} goes from {life.counts[offset]} to {count}")
            return
        least, most = life.base.get(offset, NEVER).deliveries + 1, generation.asked[offset] + 1
        if not least <= count <= most:
            raise Violation(f"the first delivery of {offset} counts {count}, and {least} to {most} are possible")

    # Acknowledgements

    def acknowledging(self, life: Life, member_id: str, kinds: Mapping[int, int], now_ms: int, lock_ms: int) -> None:
        """An acknowledgement was not refused at once."""
        generation = self.generations[life.shared.machine.state_epoch]
        for offset, kind in kinds.items():
            if kind == ACKNOWLEDGE_RENEW:
                life.held[offset] = member_id, now_ms + lock_ms
            else:
                life.held.pop(offset, None)
            if kind in (REJECT, ACKNOWLEDGE_GAP):
                generation.excused.add(offset)
            if kind == ACKNOWLEDGE_GAP:
                self.gaps.add(offset)

    def acknowledged(self, life: Life, epoch: int, kinds: Mapping[int, int], counts: Mapping[int, int]) -> None:
        """It is answered without an error."""
        generation = self.generations[epoch]
        for offset, kind in kinds.items():
            stored = generation.stored.get(offset, NEVER)
            if kind in FINISHING:
                life.done.add(offset)
                possible = {FINISHING[kind], *generation.asked_finals[offset]}
                if kind == REJECT:
                    possible.add(ARCHIVING)
                if stored.state not in possible:
                    raise Violation(f"{offset} is acknowledged with {kind}, and stored is {stored}")
            if kind == RELEASE and stored.deliveries < counts[offset]:
                raise Violation(f"{offset} is released after delivery {counts[offset]}, and stored is {stored}")
            if kind == ACCEPT:
                generation.accepted.setdefault(offset, self.now())

    # The dead-letter queue

    def lettered(self, life: Life, first_offset: int, last_offset: int) -> None:
        """The queue has these records: they were rejected or used up their deliveries; a leader writes them once."""
        generation = self.generations[life.shared.machine.state_epoch]
        for offset in range(first_offset, last_offset + 1):
            if offset in life.lettered or life.base.get(offset, NEVER).state in FINAL_STATES:
                raise Violation(f"{offset} is dead-lettered twice")
            if offset not in generation.excused | self.log.unread | self.log.aborted:
                raise Violation(f"{offset} is a dead letter without a reason")
            life.lettered.add(offset)
            generation.lettered.add(offset)

    # What is in flight

    def look(self, life: Life, now_ms: int) -> None:
        """At any time at which no alarm is due."""
        if not life.shared.is_active:
            return
        machine = life.shared.machine
        count, following = 0, 0
        for batch in machine.batches:
            if batch.first_offset < following:
                raise Violation(f"a batch begins at {batch.first_offset}, and the one before ends at {following}")
            following = batch.last_offset + 1
            for offset in range(batch.first_offset, following):
                state = batch.common_state or batch.state_by_offset[offset]
                count += offset >= machine.start_offset and state.is_final
                if offset < machine.start_offset and state.state is AVAILABLE and not state.is_in_transition:
                    raise Violation(f"{offset} is available, and the start offset is {machine.start_offset}")
                self._lock_ends(offset, state, now_ms)
        if count != machine.delivery_complete_count:
            raise Violation(f"{count} records are complete, and {machine.delivery_complete_count} are counted")
        self._start_is_right(life)

    def has_released(self, life: Life, member_id: str) -> None:
        """The session of a member has ended."""
        for batch in life.shared.machine.batches:
            for offset in range(batch.first_offset, batch.last_offset + 1):
                state = batch.common_state or batch.state_by_offset[offset]
                if state.state is ACQUIRED and state.member_id == member_id:
                    raise Violation(f"{member_id} has gone, and holds {offset}")

    def _lock_ends(self, offset: int, state: InFlightState, now_ms: int) -> None:
        if state.state is not ACQUIRED or state.is_in_transition:
            return
        if state.lock is None or state.lock.deadline_ms < now_ms:
            deadline_ms = None if state.lock is None else state.lock.deadline_ms
            raise Violation(f"{state.member_id} holds {offset}, the lock ends at {deadline_ms}, now {now_ms}")

    def _start_is_right(self, life: Life) -> None:
        """The start offset passes what is finished, and goes forward."""
        start = life.shared.machine.start_offset
        generation = self.generations[life.shared.machine.state_epoch]
        if life.start_offset > start:
            raise Violation(f"the start offset goes from {life.start_offset} to {start}")
        begin = max(life.start_offset, generation.start_offset, self.log.log_start_offset)
        for offset in range(begin, start):
            is_final = generation.stored.get(offset, NEVER).state in FINAL_STATES
            if not is_final and offset not in generation.excused | self.log.aborted | self.log.unread:
                raise Violation(f"the start offset passes {offset}, which is not finished")
        life.start_offset = start

    # The end

    def check_end(self, end_offset: int, *, has_dead_letters: bool) -> None:
        """Everything is accepted, or has an excuse; what is archived is in the dead-letter queue, if there is one."""
        generation = self.generations[max(self.generations)]
        for offset in range(max(generation.start_offset, self.log.log_start_offset), end_offset):
            is_accepted = generation.stored.get(offset, NEVER).state == ACKNOWLEDGED or offset in generation.accepted
            excused = generation.excused | self.log.aborted | self.log.unread
            if not is_accepted and offset not in excused:
                raise Violation(f"{offset} is neither acknowledged nor delivered again")
            is_archived = generation.stored.get(offset, NEVER).state == ARCHIVED and offset not in self.gaps
            if has_dead_letters and is_archived and offset not in generation.lettered | self.log.unread:
                raise Violation(f"{offset} is archived, and the dead-letter queue does not have it")
