"""Random walks of a share partition: every record is acknowledged, or delivered again, and delivery counts are right.

A model notes for each offset how often it was delivered, which member holds it, and what is stored. A walk acquires,
acknowledges, ends sessions, lets locks expire, fails writes, deletes records from the log and changes the leader. At
the end the members accept everything they get until nothing is left.

Every other walk is that of a group with a dead-letter queue. The model counts the dead letters of each offset: those
that were rejected or used up have one, and another one for each leader that did not come to archive them.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable

import pytest

from moldau.replication.share.acquisition import AcquiredRecords
from moldau.replication.share.changes import (
    ACKNOWLEDGE_GAP,
    AcknowledgementBatch,
    AcknowledgeRefusal,
    DeadLetter,
    ShareLimits,
    StateWrite,
)
from moldau.replication.share.in_flight import ARCHIVED, ARCHIVING, FINAL_STATES
from tests.support.share_partition_stage import ACCEPT, REJECT, RELEASE, RENEW, SharePartitionStage

WALKS = 150
STEPS = 120
MEMBERS = ("a", "b", "c")
OPEN_WRITES_MAX = 3
NOT_DELIVERED = FINAL_STATES | {ARCHIVING}


class Walk:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        limits = ShareLimits(
            self.random.choice((2, 3, 5, 8)), self.random.choice((20, 50, 500)), 1_000, True, seed % 2 == 1
        )
        self.stage = SharePartitionStage([self.random.randint(1, 9) for _ in range(20)], limits)
        self.holders: dict[int, tuple[str, int]] = {}
        """The member that holds an offset, and the end of its lock."""
        self.counts: dict[int, int] = {}
        """Deliveries by offset, since the last change of leader counted on top of the stored ones."""
        self.accepted: set[int] = set()
        """The offsets whose acceptance is stored."""
        self.finished: set[int] = set()
        """The offsets that must not be delivered any more, also those that were rejected or used up."""
        self.writes: list[tuple[StateWrite, dict[int, int]]] = []
        """The writes under way, with the type of each acknowledgement."""
        self.log_start = 0
        self.letters: list[DeadLetter] = []
        """What the dead-letter queue is to have, and has not yet."""
        self.dead: Counter[int] = Counter()
        """The dead letters of each offset."""
        self.to_be_dead: dict[int, bool | None] = {}
        """The offsets that need a dead letter, each with whether a member rejected it; None if that is not known."""
        self.leaders = 1

    def step(self) -> None:
        actions = (self.acquire, self.acquire, self.acknowledge, self.acknowledge, self.end_write, self.end_write)
        rare = (self.end_session, self.expire, self.delete_records, self.fail_over, self.append, self.end_letter)
        self.random.choice(actions if self.random.random() < 0.8 else rare)()
        self.check()

    # What happens

    def acquire(self) -> None:
        member, limit = self.random.choice(MEMBERS), self.random.choice((1, 5, 20, 500))
        acquired = self.stage.acquire_records(
            member,
            limit,
            self.random.choice((3, 500)),
            is_strict=self.random.random() < 0.4,
            batches_max=self.random.randint(1, 8),
        )
        self.deliver(member, acquired)

    def deliver(self, member: str, acquired: Iterable[AcquiredRecords]) -> None:
        for first, last, count in acquired:
            for offset in range(first, last + 1):
                assert offset not in self.finished, f"{offset} is delivered again"
                assert offset not in self.holders, f"{offset} has two members"
                self.counts[offset] = self.counts.get(offset, 0) + 1
                assert count == self.counts[offset] <= self.stage.limits.delivery_count_max
                self.holders[offset] = member, self.stage.now_ms + self.stage.limits.lock_duration_ms

    def acknowledge(self) -> None:
        if len(self.writes) == OPEN_WRITES_MAX or not self.holders:
            return
        start = self.random.choice(sorted(self.holders))
        member = self.holders[start][0]
        last = start
        while last - start < 12 and self.holders.get(last + 1, ("", 0))[0] == member:
            last += 1
        last = self.random.randint(start, last)
        kinds = [
            self.random.choice((ACCEPT, ACCEPT, RELEASE, REJECT, ACKNOWLEDGE_GAP, RENEW))
            for _ in range(last - start + 1)
        ]
        if self.random.random() < 0.5:
            kinds = kinds[:1]
        batch = AcknowledgementBatch(start, last, kinds)
        answer = self.stage.partition.acknowledge(member, [batch], self.stage.now_ms)
        assert not isinstance(answer, AcknowledgeRefusal), answer
        told = {
            offset: kinds[offset - start] if len(kinds) > 1 else kinds[0]
            for offset in range(max(start, self.stage.partition.start_offset), last + 1)
        }
        for offset, kind in told.items():
            if kind == RENEW:
                self.holders[offset] = member, self.stage.now_ms + self.stage.limits.lock_duration_ms
            else:
                del self.holders[offset]
        if answer is not None:
            assert {offset for first, end, *_ in answer.batches for offset in range(first, end + 1)} == {
                offset for offset, kind in told.items() if kind != RENEW
            }
            self.writes.append((answer, {offset: kind for offset, kind in told.items() if kind != RENEW}))

    def end_write(self) -> None:
        if not self.writes:
            return
        write, kinds = self.writes.pop(0)
        if self.random.random() < 0.8:
            self.stage.store(write)
            self.note_stored(write, kinds)
        else:
            self.stage.partition.finish_state_write(write, is_stored=False)
            self.look_for_holders(write)
        self.take_letters()

    def note_stored(self, write: StateWrite, kinds: dict[int, int]) -> None:
        for first, last, state, _ in write.batches:
            for offset in range(first, last + 1):
                if state in NOT_DELIVERED:
                    self.finished.add(offset)
                if state == ARCHIVING:
                    self.to_be_dead[offset] = kinds.get(offset) == REJECT
                elif state == ARCHIVED and self.stage.limits.has_dead_letters:
                    is_gone = offset < self.stage.partition.start_offset
                    assert kinds.get(offset) == ACKNOWLEDGE_GAP or is_gone, (
                        f"{offset} is archived without a dead letter"
                    )
                if kinds.get(offset) == ACCEPT:
                    self.accepted.add(offset)

    def look_for_holders(self, undone: StateWrite) -> None:
        """After an undone write the members hold their records again, until the locks that they had. If a lock was
        over during the write, its records are available, or archived after their last delivery.
        """
        in_flight = {
            offset: batch.common_state or batch.state_by_offset[offset]
            for batch in self.stage.partition.batches
            for offset in range(batch.first_offset, batch.last_offset + 1)
        }
        for first, last, _, count in undone.batches:
            for offset in range(first, last + 1):
                state = in_flight.get(offset)
                if state is not None and state.member_id:
                    assert state.lock is not None
                    self.holders[offset] = state.member_id, state.lock.deadline_ms
                elif state is None or state.state in NOT_DELIVERED:
                    is_used_up = count >= self.stage.limits.delivery_count_max
                    assert is_used_up or offset in self.finished or offset < self.log_start
                    self.finished.add(offset)
                    if state is not None and state.state is ARCHIVING:
                        self.to_be_dead[offset] = False

    def take_letters(self) -> None:
        taken = self.stage.partition.take_dead_letters()
        for first, last, count, is_rejected in taken:
            for offset in range(first, last + 1):
                assert self.to_be_dead[offset] in (is_rejected, None), f"{offset} is dead for another reason"
                assert count == self.counts[offset]
        self.letters += taken

    def end_letter(self) -> None:
        """The queue has a dead letter; mostly the records are archived then, sometimes the leader changes before."""
        if not self.letters:
            return
        letter = self.letters.pop(self.random.randrange(len(self.letters)))
        self.dead.update(range(letter.first_offset, letter.last_offset + 1))
        if self.random.random() < 0.1:
            self.fail_over()
            return
        write = self.stage.partition.archive_dead_letter(letter)
        if self.random.random() < 0.9:
            self.stage.store(write)
        else:
            self.stage.partition.finish_state_write(write, is_stored=False)

    def end_session(self) -> None:
        member = self.random.choice(MEMBERS)
        write = self.stage.partition.release_acquired(member)
        self.holders = {offset: holder for offset, holder in self.holders.items() if holder[0] != member}
        if write is not None:
            self.stage.store(write)
            self.note_stored(write, {})
        self.take_letters()

    def expire(self) -> None:
        self.stage.now_ms += self.random.choice((100, 600, 1_000))
        write = self.stage.partition.expire_locks(self.stage.now_ms)
        over = {offset for offset, (_, until_ms) in self.holders.items() if until_ms <= self.stage.now_ms}
        for offset in over:
            del self.holders[offset]
        released = {offset for first, last, *_ in (write.batches if write else ()) for offset in range(first, last + 1)}
        assert over == released
        if write is not None:
            self.stage.store(write)
            self.note_stored(write, {})
        self.take_letters()

    def delete_records(self) -> None:
        log = self.stage.log
        if len(log) < 10 or self.random.random() < 0.7:
            return
        self.log_start = self.random.randint(self.log_start, log[2].last_offset)
        while log[0].last_offset < self.log_start:
            del log[0]
        self.stage.partition.on_log_start_moved(self.log_start)

    def fail_over(self) -> None:
        self.writes.clear()
        self.holders.clear()
        self.letters.clear()
        self.leaders += 1
        self.stage.fail_over()
        stored = self.stage.stored
        self.counts = {offset: count for offset, (count, _) in stored.items()}
        self.finished = {offset for offset, (_, state) in stored.items() if state in NOT_DELIVERED}
        self.finished.update(range(self.stage.stored_start))
        # The stored state does not say why. A dead letter of a record that is deleted from the log may be lost.
        archiving = {offset for offset, (_, state) in stored.items() if state == ARCHIVING}
        self.to_be_dead = dict.fromkeys(
            self.dead.keys() | {each for each in archiving if each >= self.stage.stored_start}
        )
        self.take_letters()
        self.stage.partition.on_log_start_moved(self.log_start)

    def append(self) -> None:
        self.stage.append(self.random.randint(1, 9))

    # What holds

    def check(self) -> None:
        partition = self.stage.partition
        count, following = 0, 0
        for batch in partition.batches:
            assert batch.first_offset >= following, "batches overlap"
            following = batch.last_offset + 1
            for offset in range(batch.first_offset, batch.last_offset + 1):
                state = batch.common_state or batch.state_by_offset[offset]
                count += offset >= partition.start_offset and state.is_final
                held = self.holders.get(offset)
                assert (held[0] if held is not None else "") == state.member_id, offset
        assert count == partition.delivery_complete_count
        assert self.accepted <= self.finished

    def finish(self) -> None:
        """Accept everything until nothing is left."""
        while self.writes:
            self.end_write()
        while self.letters:
            self.end_letter()
        for _ in range(2_000):
            if self.stage.partition.undelivered_range is not None:
                self.append()  # The start offset does not pass a gap until a record after it is acquired.
            self.stage.now_ms += 1_000
            write = self.stage.partition.expire_locks(self.stage.now_ms)
            self.holders.clear()
            if write is not None:
                self.stage.store(write)
                self.note_stored(write, {})
            self.take_letters()
            while self.letters:
                self.end_letter()
            acquired = self.stage.acquire_records("a")
            self.deliver("a", acquired)
            for first, last, _ in acquired:
                assert self.stage.acknowledge("a", first, last, ACCEPT) is None
                self.finished.update(range(first, last + 1))
            self.holders.clear()
            if self.stage.partition.next_fetch_offset() > self.stage.log[-1].last_offset:
                break
        partition = self.stage.partition
        log_end = self.stage.log[-1].last_offset + 1
        everything = set(range(self.log_start, log_end))
        assert everything <= self.finished, sorted(everything - self.finished)
        assert (partition.start_offset, len(partition.batches)) == (log_end, 0)
        assert partition.delivery_complete_count == 0 and partition.next_deadline_ms() is None
        assert self.dead.keys() >= self.to_be_dead.keys(), "a dead letter is lost"
        assert self.dead.keys() <= self.to_be_dead.keys() | set(range(self.log_start)), "a dead letter of a live record"
        assert max(self.dead.values(), default=0) <= self.leaders, "a leader writes a dead letter twice"


@pytest.mark.parametrize("seed", range(WALKS))
def test_every_record_is_acknowledged_or_delivered_again(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(STEPS):
        walk.step()
    walk.finish()
