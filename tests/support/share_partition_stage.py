"""A share partition over a log of batches, with the state that its writes stored."""

from __future__ import annotations

from collections.abc import Sequence

from moldau.replication.share.acquisition import AcquiredRecords, AcquireParameters, FetchedBatch, acquire_records
from moldau.replication.share.changes import (
    AcknowledgementBatch,
    AcknowledgeRefusal,
    ShareLimits,
    StateWrite,
    StoredBatch,
)
from moldau.replication.share.share_partition import SharePartition

LIMITS = ShareLimits(delivery_count_max=5, records_max=2_000, lock_duration_ms=30_000, is_renewable=True)
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


class SharePartitionStage:
    """Batches of these sizes from offset 0 on; the share coordinator stores each write at once."""

    def __init__(self, sizes: Sequence[int] = (10, 10, 10), limits: ShareLimits = LIMITS) -> None:
        self.limits = limits
        self.log: list[FetchedBatch] = []
        for size in sizes:
            self.append(size)
        self.now_ms = 0
        self.stored_start = 0
        self.stored: dict[int, tuple[int, int]] = {}
        """(delivery count, delivery state) by offset"""
        self.partition = SharePartition(0, lambda: self.limits)
        self.partition.load(0, 0, ())

    def append(self, size: int, producer_id: int = -1, *, is_transactional: bool = False, aborts: bool = False) -> None:
        first = self.log[-1].last_offset + 1 if self.log else 0
        self.log.append(FetchedBatch(first, first + size - 1, producer_id, is_transactional, aborts))

    def fetched(self, batches_max: int = 1_000) -> list[FetchedBatch]:
        """The batches from the next fetch offset on."""
        offset = self.partition.next_fetch_offset()
        return [each for each in self.log if each.last_offset >= offset][:batches_max]

    def acquire_records(
        self,
        member_id: str,
        records_max: int = 500,
        batch_size: int = 500,
        *,
        is_strict: bool = False,
        batches_max: int = 1_000,
        aborted: Sequence[tuple[int, int]] = (),
    ) -> list[AcquiredRecords]:
        if not self.partition.can_acquire:
            return []
        wish = AcquireParameters(member_id, records_max, batch_size, is_strict, self.partition.next_fetch_offset())
        return acquire_records(self.partition, wish, self.fetched(batches_max), aborted, self.now_ms)[0]

    def begin(self, member_id: str, first: int, last: int, *kinds: int) -> StateWrite | AcknowledgeRefusal | None:
        """Acknowledge, and leave the write open."""
        return self.partition.acknowledge(member_id, [AcknowledgementBatch(first, last, kinds)], self.now_ms)

    def acknowledge(self, member_id: str, first: int, last: int, *kinds: int) -> AcknowledgeRefusal | None:
        answer = self.begin(member_id, first, last, *kinds)
        if isinstance(answer, StateWrite):
            self.store(answer)
        return answer if isinstance(answer, AcknowledgeRefusal) else None

    def release(self, member_id: str) -> None:
        write = self.partition.release_acquired(member_id)
        if write is not None:
            self.store(write)

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        write = self.partition.expire_locks(self.now_ms)
        if write is not None:
            self.store(write)

    def store(self, write: StateWrite) -> None:
        self.stored_start = max(self.stored_start, write.start_offset)
        for first, last, state, count in write.batches:
            for offset in range(first, last + 1):
                self.stored[offset] = max(self.stored.get(offset, (0, 0)), (count, state))
        self.partition.finish_state_write(write, is_stored=True)

    def fail_over(self) -> None:
        """Another broker leads the partition, and loads what is stored."""
        self.partition = SharePartition(self.partition.leader_epoch + 1, lambda: self.limits)
        batches = [
            StoredBatch(offset, offset, state, count)
            for offset, (count, state) in sorted(self.stored.items())
            if offset >= self.stored_start
        ]
        self.partition.load(0, self.stored_start, batches)

    def states(self) -> dict[int, tuple[str, int]]:
        """The state and the delivery count of each offset in flight."""
        found = {}
        for batch in self.partition.batches:
            for offset in range(batch.first_offset, batch.last_offset + 1):
                state = batch.common_state or batch.state_by_offset[offset]
                found[offset] = state.state.name, state.delivery_count
        return found
