"""Acquires fetched records for a member of a share group: first records that are available again, then records after
the end offset.

    fetched batches      ▒▒▒▒▒▒▒▒ ▒▒▒▒▒▒▒▒▒▒▒▒ ▒▒▒▒▒▒▒▒▒▒
    in flight            [available][acquired] ·  gap ·  │ new: one batch in flight, or some of about `batch_size`
    acquired             └────────┘            └──────┘   └──────────┘

The more often a record was delivered, the fewer other records are delivered together with it; at its last delivery it
is alone. So a record that makes members fail does not use up the deliveries of its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop
from math import ceil
from typing import Final

from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.control_records import ControlRecordType, control_record_type
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.primitives import BytesLike
from moldau.protocol.record_batch import BatchHeader
from moldau.protocol.record_reader import records_of
from moldau.replication.share.in_flight import (
    ACQUIRED,
    AVAILABLE,
    NO_MEMBER,
    InFlightBatch,
    InFlightState,
)
from moldau.replication.share.share_partition import SharePartition

UNTHROTTLED_DELIVERY_COUNT: Final = 2
"""Below this delivery count a record is delivered together with any other records, whatever the group's limit is."""


class FetchedBatch(NamedTuple):
    """The fields of a record batch's header that an acquisition needs."""

    first_offset: int
    last_offset: int
    producer_id: int = -1
    is_transactional: bool = False
    is_abort_marker: bool = False
    """Whether the batch is the marker that aborts the producer's transaction."""


class AcquiredRecords(NamedTuple):
    """A run of records that a member acquired, all with the same delivery count."""

    first_offset: int
    last_offset: int
    delivery_count: int

    @property
    def size(self) -> int:
        return self.last_offset - self.first_offset + 1


class AcquireParameters(NamedTuple):
    """The parameters of a ShareFetch for one partition."""

    member_id: str
    records_max: int
    """The maximum number of records to acquire. Without `is_strict` whole batches may exceed it."""
    batch_size: int
    """The number of records after which an acquired run ends, at the next end of a record batch."""
    is_strict: bool
    """Whether `records_max` is a strict limit (acquire mode RECORD_LIMIT)."""
    fetch_offset: int
    """The offset from which the records were fetched."""


def acquire_records(
    partition: SharePartition,
    wish: AcquireParameters,
    fetched: Sequence[FetchedBatch],
    aborted_transactions: Iterable[tuple[int, int]],
    now_ms: int,
) -> tuple[list[AcquiredRecords], int]:
    """Acquire fetched records for a member. Returns the acquired runs in offset order, and the number of offsets that
    count towards the request's limit.

    `aborted_transactions`: (first offset, producer id) of the transactions that the isolation level leaves out.
    """
    if not fetched or wish.records_max <= 0 or fetched[-1].last_offset < partition.start_offset:
        return [], 0
    last_offset, records_max = acquirable_range(partition, wish, fetched[-1].last_offset)
    if records_max <= 0:
        return [], 0
    acquisition = Acquisition(partition, wish, fetched, last_offset, records_max, now_ms)
    acquired, count = acquisition.acquire_records()
    if not acquired:
        partition.advance_start_offset()  # What is missing in the log may have been all that it waited for.
        return acquired, count
    left_out = aborted_batches(fetched, aborted_transactions)
    if not left_out:
        return acquired, count
    for batch in left_out:
        first = partition.batches.last_starting_at_or_before(batch.first_offset)
        if first is not None:
            found = partition.batches.starting_between(first.first_offset, batch.last_offset)
            archived = partition.archive_records(found, batch.first_offset, batch.last_offset, ACQUIRED)
            partition.delivery_complete_count += archived or 0
    acquired = without_records_of(acquired, left_out)
    if not acquired:
        # DIVERGES: in Apache Kafka the start offset waits for an acknowledgement. A transaction with as many records as
        # may be in flight has none, and nothing is acquired any more.
        partition.advance_start_offset()
    return acquired, sum(each.size for each in acquired)


def acquirable_range(partition: SharePartition, wish: AcquireParameters, last_offset: int) -> tuple[int, int]:
    """Return the last offset and the number of records that may be acquired.

    When the group has its maximum of records in flight, only records before the end offset may be acquired, because
    they are delivered again.
    """
    records_max = min(wish.records_max, partition.limits().records_max - partition.records_count)
    if records_max > 0 or wish.fetch_offset > partition.end_offset:
        return last_offset, records_max
    records_max = min(wish.records_max, partition.end_offset - wish.fetch_offset + 1)
    return min(last_offset, partition.end_offset), records_max


class Acquisition:
    """Acquires fetched records for one request, within its limits."""

    def __init__(
        self,
        partition: SharePartition,
        wish: AcquireParameters,
        fetched: Sequence[FetchedBatch],
        last_offset: int,
        records_max: int,
        now_ms: int,
    ) -> None:
        limits = partition.limits()
        self._partition = partition
        self._wish = wish
        self._fetched = fetched
        self._last_offset = last_offset
        self._left = records_max
        """The number of records that may still be acquired."""
        self._locks_until_ms = now_ms + limits.lock_duration_ms
        self._deliveries_max = limits.delivery_count_max
        self._throttled_from = max(UNTHROTTLED_DELIVERY_COUNT, ceil(limits.delivery_count_max / 2))
        """The delivery count from which on a record is delivered with few others."""
        self._acquired: list[AcquiredRecords] = []
        self._count = 0

    def acquire_records(self) -> tuple[list[AcquiredRecords], int]:
        partition = self._partition
        first_offset = self._fetched[0].first_offset
        self._archive_missing(first_offset)
        base_offset = first_offset
        floor = partition.batches.last_starting_at_or_before(base_offset)
        if floor is None or floor.last_offset < base_offset:
            base_offset = max(base_offset, partition.start_offset)
        else:
            base_offset = floor.first_offset
        found = partition.batches.starting_between(min(first_offset, base_offset), self._last_offset)
        if not found:
            self._acquire_new(base_offset, self._last_offset)
            return self._acquired, self._count
        next_offset = base_offset
        for batch in found:
            if self._left <= 0:
                break
            if partition.undelivered_range is not None:
                if next_offset < batch.first_offset:
                    self._acquire_new(next_offset, batch.first_offset - 1)
                next_offset = batch.last_offset + 1
                if self._left <= 0:
                    break
            if not self._acquire_again(batch, first_offset):
                break
        if self._left > 0 and found[-1].last_offset < self._last_offset:
            self._acquire_new(found[-1].last_offset + 1, self._last_offset)
        if self._acquired:
            partition.note_gap_delivered(self._acquired[-1].last_offset + 1)
        return self._acquired, self._count

    def _archive_missing(self, first_offset: int) -> None:
        """Archive the available records between the fetch offset and the first fetched batch. Compaction removed them
        from the log.
        """
        partition, fetch_offset = self._partition, self._wish.fetch_offset
        if not partition.batches or fetch_offset >= first_offset:
            return
        floor = partition.batches.last_starting_at_or_before(fetch_offset)
        if floor is not None and floor.last_offset >= fetch_offset:
            stale = partition.batches.starting_between(floor.first_offset, first_offset - 1)
        else:
            stale = partition.batches.starting_between(fetch_offset, first_offset - 1)
        archived = partition.archive_records(stale, fetch_offset, first_offset - 1, AVAILABLE)
        if archived is not None:
            partition.delivery_complete_count += archived
            partition.may_have_available_before_end = True
        partition.skip_offsets_without_records(fetch_offset, first_offset)
        next_offset = first_offset
        for batch in partition.batches:
            if batch.first_offset > next_offset:
                break
            next_offset = max(next_offset, batch.last_offset + 1)
        partition.note_gap_delivered(next_offset)

    # Records that are in flight

    def _acquire_again(self, batch: InFlightBatch, first_offset: int) -> bool:
        """Acquire the available records of an in-flight batch. Returns False when no more may be acquired."""
        is_throttled = self._is_throttled(batch, first_offset)
        if is_throttled and self._count > 0:
            self._left = 0
            return False
        whole = batch.common_state
        if whole is not None:
            if not whole.is_acquirable:
                return True
            is_within = first_offset <= batch.first_offset and batch.last_offset <= self._last_offset
            is_too_much = self._wish.is_strict and batch.size > self._left
            if is_within and not is_too_much and not is_throttled:
                self._acquire_state(batch.first_offset, batch.last_offset, whole)
                self._acquired.append(AcquiredRecords(batch.first_offset, batch.last_offset, whole.delivery_count))
                self._took(batch.size)
                return True
            batch.split_by_offset(self._partition.locks)
        count = self._acquire_offsets(batch, first_offset)
        if is_throttled and count:
            self._left = 0
            return False
        return True

    def _is_throttled(self, batch: InFlightBatch, first_offset: int) -> bool:
        """Whether the batch has an available record with a high delivery count, which may be delivered only with few
        others.
        """
        whole = batch.common_state
        if whole is not None:
            return whole.is_acquirable and whole.delivery_count >= self._throttled_from
        return any(
            state.is_acquirable and state.delivery_count >= self._throttled_from
            for _, state in batch.states(first_offset, self._last_offset)
        )

    def _acquire_offsets(self, batch: InFlightBatch, first_offset: int) -> int:
        """Acquire the available records of a batch whose records have their own states. Returns their number."""
        deliveries_max, left = self._deliveries_max, self._left
        acquired: list[AcquiredRecords] = []
        few_max: int | None = None
        for offset, state in batch.states(first_offset, self._last_offset):
            if not state.is_acquirable:
                continue
            is_last_delivery = (
                deliveries_max > UNTHROTTLED_DELIVERY_COUNT and state.delivery_count == deliveries_max - 1
            )
            if is_last_delivery and acquired:
                break
            if few_max is None and state.delivery_count >= self._throttled_from:
                few_max = max(1, len(batch.state_by_offset) >> (state.delivery_count - self._throttled_from + 1))
            self._acquire_state(offset, offset, state)
            acquired.append(AcquiredRecords(offset, offset, state.delivery_count))
            if is_last_delivery or (self._wish.is_strict and len(acquired) == left) or len(acquired) == few_max:
                break
        self._acquired.extend(merge_adjacent(acquired))
        self._took(len(acquired))
        return len(acquired)

    def _acquire_state(self, first_offset: int, last_offset: int, state: InFlightState) -> None:
        lock = self._partition.locks.add(first_offset, last_offset, self._locks_until_ms)
        state.acquire(self._wish.member_id, lock)

    def _took(self, count: int) -> None:
        self._left -= count
        self._count += count

    # Records that are not in flight yet

    def _acquire_new(self, first_offset: int, last_offset: int) -> None:
        """Acquire the records of a range that no in-flight batch covers."""
        partition = self._partition
        first_offset = max(first_offset, partition.start_offset if partition.batches else partition.end_offset)
        if first_offset > last_offset:
            return
        last_acquired = last_offset
        if self._left < last_acquired - first_offset + 1:
            last_acquired = end_of_batch(self._fetched, first_offset + self._left - 1)
            if partition.undelivered_range is not None:
                last_acquired = min(last_acquired, last_offset)
        runs = self._runs(first_offset, last_acquired)
        is_cut = self._wish.is_strict and runs[0].size > self._left
        for run in runs:
            self._add(run, cut_after=self._left if is_cut else None)
        if partition.batches.first.first_offset == first_offset:
            partition.start_offset = first_offset
        partition.end_offset = max(partition.end_offset, last_acquired)
        if is_cut:
            runs = [runs[0]._replace(last_offset=first_offset + self._left - 1)]
        if self._wish.is_strict:
            last_acquired = runs[0].last_offset
        partition.note_gap_delivered(last_acquired + 1)
        self._acquired.extend(runs)
        self._took(last_acquired - first_offset + 1)

    def _runs(self, first_offset: int, last_offset: int) -> list[AcquiredRecords]:
        """Cut a range of offsets into runs of at least `batch_size` records that end with record batches."""
        runs = []
        size = self._wish.batch_size
        if not self._wish.is_strict and last_offset - first_offset + 1 > size:
            for batch in self._fetched:
                if batch.first_offset > last_offset:
                    break
                if batch.first_offset - first_offset >= size:
                    runs.append(AcquiredRecords(first_offset, batch.first_offset - 1, 1))
                    first_offset = batch.first_offset
        runs.append(AcquiredRecords(first_offset, last_offset, 1))
        return runs

    def _add(self, run: AcquiredRecords, cut_after: int | None) -> None:
        """Add a run to the in-flight records, as acquired. With `cut_after` only that many of its first records are
        acquired; the rest becomes available, not counted as delivered.
        """
        partition, (first, last, _) = self._partition, run
        if cut_after is None:
            lock = partition.locks.add(first, last, self._locks_until_ms)
            whole = InFlightState(ACQUIRED, 1, self._wish.member_id, lock)
            partition.batches.add(InFlightBatch(first, last, whole))
            return
        batch = InFlightBatch(first, last, InFlightState(AVAILABLE, 0, NO_MEMBER))
        batch.split_by_offset(partition.locks)
        for offset, state in batch.states(first, first + cut_after - 1):
            self._acquire_state(offset, offset, state)
        partition.batches.add(batch)
        partition.may_have_available_before_end = True


def end_of_batch(fetched: Iterable[FetchedBatch], offset: int) -> int:
    """The last offset of the fetched batch that contains `offset`; `offset` if there is none."""
    for batch in fetched:
        if batch.first_offset <= offset <= batch.last_offset:
            return batch.last_offset
    return offset


def merge_adjacent(acquired: Iterable[AcquiredRecords]) -> list[AcquiredRecords]:
    """Join adjacent runs with the same delivery count."""
    runs: list[AcquiredRecords] = []
    for each in acquired:
        if runs and runs[-1].last_offset + 1 == each.first_offset and runs[-1].delivery_count == each.delivery_count:
            runs[-1] = runs[-1]._replace(last_offset=each.last_offset)
        else:
            runs.append(each)
    return runs


# Transactions that were aborted


def aborted_batches(
    fetched: Iterable[FetchedBatch], aborted_transactions: Iterable[tuple[int, int]]
) -> list[FetchedBatch]:
    """Return the fetched batches of aborted transactions, which are given as (first offset, producer id)."""
    waiting = list(aborted_transactions)
    heapify(waiting)
    aborted: set[int] = set()
    found = []
    for batch in fetched:
        if batch.producer_id < 0:
            continue
        while waiting and waiting[0][0] <= batch.last_offset:
            aborted.add(heappop(waiting)[1])
        if batch.is_abort_marker:
            aborted.discard(batch.producer_id)
        elif batch.is_transactional and batch.producer_id in aborted:
            found.append(batch)
    return found


def without_records_of(acquired: Iterable[AcquiredRecords], left_out: Sequence[FetchedBatch]) -> list[AcquiredRecords]:
    """Return the acquired runs without the records of the batches `left_out`. Both are in offset order."""
    result = []
    for first, last, count in acquired:
        for batch in left_out:
            if batch.last_offset < first:
                continue
            if batch.first_offset > last:
                break
            if batch.first_offset > first:
                result.append(AcquiredRecords(first, batch.first_offset - 1, count))
            first = batch.last_offset + 1
        if first <= last:
            result.append(AcquiredRecords(first, last, count))
    return result


# Fetched bytes


class PlacedBatch(NamedTuple):
    """A record batch with its start and end position in the fetched bytes."""

    batch: FetchedBatch
    position: int
    end_position: int


def fetched_batches(data: BytesLike) -> Iterator[PlacedBatch]:
    """Yield the complete record batches in fetched bytes, in offset order."""
    for position, header in iterate_batches(data):
        batch = FetchedBatch(
            header.base_offset,
            header.next_offset - 1,
            header.producer_id,
            header.is_transactional,
            header.is_control and is_abort_marker(data, position, header),
        )
        yield PlacedBatch(batch, position, position + header.size)


def is_abort_marker(data: BytesLike, position: int, header: BatchHeader) -> bool:
    """Whether the control batch at this position is an abort marker."""
    first = next(records_of(data, position, header), None)
    return first is not None and control_record_type(first.key) is ControlRecordType.ABORT


def bytes_with_acquired(
    data: BytesLike, batches: Sequence[PlacedBatch], acquired: Sequence[AcquiredRecords]
) -> BytesLike:
    """Return the bytes from the batch with the first acquired record to the batch with the last one."""
    first, last = acquired[0].first_offset, acquired[-1].last_offset
    held = [each for each in batches if each.batch.last_offset >= first and each.batch.first_offset <= last]
    if not held:
        return data
    return memoryview(data)[held[0].position : held[-1].end_position]
