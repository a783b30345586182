"""How far a group is behind: the records that a read_committed consumer still receives, and the age of the first one.

    committed offset ──▶ batches up to the last stable offset, without markers and aborted ones ──▶ their records

The difference of two offsets counts markers, aborted records and what compaction removed. So the batches are read and
their records counted, as far as `Budget` allows; beyond it the difference of the offsets is an upper bound. Where the
group is in the middle of a batch, its records are decoded, in an executor thread.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Final

from moldau.broker.console.kafka_client import KafkaClient, Unanswered
from moldau.broker.console.page import SLICE, gather
from moldau.broker.console.partitions import EARLIEST, LATEST, READ_COMMITTED, Partition, offsets_of
from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.messages.fetch import AbortedTransaction, FetchPartition, FetchRequest, FetchResponse, FetchTopic
from moldau.protocol.primitives import BytesLike, MalformedMessage
from moldau.protocol.record_batch import BatchHeader
from moldau.protocol.record_reader import records_of

FETCH_VERSION: Final = 12
"""The last version that names topics by name."""
PIECE_SIZE: Final = 1 << 17
"""Bytes of one Fetch, whose batches are counted in one piece of work."""
EXPANDED_SIZE_MAX: Final = 1 << 24
"""Bytes to which a batch may expand whose records are looked at one by one."""


class Budget:
    """The bytes that one page may read in order to count records."""

    def __init__(self, page: int, partition: int) -> None:
        self.left = page
        self.partition = partition


class OffsetSet:
    """Offsets in half-open ranges, which ascend and do not overlap."""

    def __init__(self, ranges: Sequence[tuple[int, int]] = ()) -> None:
        self._edges = [edge for each in ranges for edge in each]
        self._counts = list(accumulate((end - first for first, end in ranges), initial=0))

    def __contains__(self, offset: int) -> bool:
        return bisect_right(self._edges, offset) % 2 == 1

    def count(self, begin: int, end: int) -> int:
        """How many of the offsets from one to another are in the set."""
        return self._count_below(end) - self._count_below(begin)

    def _count_below(self, offset: int) -> int:
        place = bisect_right(self._edges, offset)
        return self._counts[place // 2] + (offset - self._edges[place - 1] if place % 2 else 0)


NO_OFFSETS: Final = OffsetSet()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PartitionLag:
    topic: str
    partition: int
    committed: int | None
    """The next offset that the group reads; None where it has committed none."""
    end: int | None
    """The last stable offset; None where the leader does not tell it."""
    records: int | None
    """The records that the group has not read; None where one of the offsets is unknown."""
    is_exact: bool
    """Whether the records were counted; otherwise `records` is an upper bound."""
    behind_ms: int | None
    """The age of the first record that the group has not read; 0 where it has read all, None where it is unknown."""
    metadata: str = ""
    """What the group committed with its offset."""
    is_past_end: bool = False
    """Whether the committed offset is past the end: the log was truncated, or the topic made again. The group has not
    read all of it, its consumers go where `auto.offset.reset` says."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Ends:
    """The offsets between which partitions have records, as their leaders tell them."""

    first: Mapping[Partition, int]
    last: Mapping[Partition, int]
    """The last stable offsets, or the high watermarks."""


async def ends_of(client: KafkaClient, partitions: Iterable[Partition], isolation: int = READ_COMMITTED) -> Ends:
    """Both ends of partitions; one request for each leader and end."""
    keys = list(partitions)
    last, first = await gather(offsets_of(client, keys, LATEST, isolation), offsets_of(client, keys, EARLIEST))
    return Ends(first, last)


async def partition_lags(
    client: KafkaClient,
    committed: Mapping[Partition, int | None],
    ends: Ends,
    budget: Budget,
    isolation: int = READ_COMMITTED,
    finished: Mapping[Partition, OffsetSet | None] | None = None,
) -> list[PartitionLag]:
    """The lag of each partition, in the order of topics and partitions. `finished`: the offsets behind the committed
    one that are not read again; None where they are not known, and the lag is an upper bound.
    """
    now_ms = client.ports.environment.wall_ms()
    lags = []
    for count, (key, offset) in enumerate(sorted(committed.items()), 1):
        if count % SLICE == 0:
            await asyncio.sleep(0)
        end = ends.last.get(key)
        if offset is None or end is None:
            lags.append(PartitionLag(*key, offset, end, None, False, None))
            continue
        begin = max(offset, ends.first.get(key, offset))
        if begin >= end:
            lags.append(PartitionLag(*key, offset, end, 0, True, 0, is_past_end=offset > end))
            continue
        left_out = (finished or {}).get(key, NO_OFFSETS)
        counted = Counted(begin, end, left_out or NO_OFFSETS)
        await _count(client, key, counted, budget, isolation)
        is_exact = counted.offset >= end and left_out is not None
        records = counted.records + counted.offsets_left
        behind_ms = 0 if counted.first_ms is None and is_exact else None
        if counted.first_ms is not None:
            behind_ms = max(now_ms - counted.first_ms, 0)
        lags.append(PartitionLag(*key, offset, end, records, is_exact, behind_ms))
    return lags


@dataclass(slots=True)
class Counted:
    """What was counted so far, from one offset to another."""

    offset: int
    """The next offset to look at."""
    end: int
    finished: OffsetSet = NO_OFFSETS
    """Offsets that are not counted."""
    records: int = 0
    first_ms: int | None = None
    """The timestamp of the first record."""

    @property
    def offsets_left(self) -> int:
        """The offsets that may be records and were not looked at."""
        if self.offset >= self.end:
            return 0
        return self.end - self.offset - self.finished.count(self.offset, self.end)


async def _count(client: KafkaClient, key: Partition, counted: Counted, budget: Budget, isolation: int) -> None:
    """Count as far as the budget and the leader allow."""
    left = budget.partition
    while counted.offset < counted.end and left > 0 and budget.left > 0:
        fetched = await fetch(client, key, counted.offset, PIECE_SIZE, isolation)
        if fetched is None or fetched.error or not fetched.records:
            return
        size = len(fetched.records)
        left, budget.left = left - size, budget.left - size
        before = counted.offset
        # In the process the records are a view of a buffer of the log.
        work = partial(count_batches, counted, bytes(fetched.records), fetched.aborted)
        try:
            await client.ports.environment.offload(work)
        except MalformedMessage:
            return
        if counted.offset == before:
            return


def count_batches(counted: Counted, records: BytesLike, aborted: Iterable[AbortedTransaction]) -> None:
    """Count the records of whole batches that a read_committed consumer receives from `counted.offset` on, up to
    `counted.end`. It may run in any thread.

    Raises `MalformedMessage`.
    """
    open_aborts: dict[int, list[int]] = {}
    for each in sorted(aborted, key=lambda each: each.first_offset):
        open_aborts.setdefault(each.producer_id, []).append(each.first_offset)
    for position, header in iterate_batches(records):
        if header.base_offset >= counted.end:
            counted.offset = counted.end
            return
        if header.last_offset < counted.offset:
            continue
        firsts = open_aborts.get(header.producer_id)
        is_aborted = bool(firsts) and header.is_transactional and firsts is not None and firsts[0] <= header.last_offset
        if header.is_control:
            if is_aborted and firsts is not None:
                firsts.pop(0)  # The marker ends the aborted transaction.
        elif not is_aborted:
            _count_batch(counted, records, position, header)
        counted.offset = header.next_offset


def _count_batch(counted: Counted, records: BytesLike, position: int, header: BatchHeader) -> None:
    begin, end = max(header.base_offset, counted.offset), min(header.next_offset, counted.end)
    left_out = counted.finished.count(begin, end)
    if header.records_count <= 0 or left_out == end - begin:
        return
    is_whole = end - begin == header.last_offset_delta + 1 and not left_out
    is_dense = header.records_count == header.last_offset_delta + 1
    is_log_append_time = bool(header.timestamp_type)
    timestamp = header.max_timestamp if is_log_append_time else header.base_timestamp
    is_dated = counted.first_ms is not None or is_log_append_time or (is_whole and header.delete_horizon_ms is None)
    if is_dated and (is_whole or is_dense):
        counted.records += header.records_count if is_whole else end - begin - left_out
    else:
        unread = [
            each
            for each in records_of(records, position, header, size_max=EXPANDED_SIZE_MAX)
            if begin <= each.offset < end and each.offset not in counted.finished
        ]
        counted.records += len(unread)
        if not unread:
            return
        timestamp = unread[0].timestamp
    if counted.first_ms is None:
        counted.first_ms = timestamp


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Fetched:
    """What the leader of a partition gave for one Fetch."""

    error: int
    records: BytesLike
    """Whole batches; the last one may be cut short."""
    aborted: Sequence[AbortedTransaction]
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


async def fetch(
    client: KafkaClient, key: Partition, offset: int, size: int, isolation: int, *, wait_ms: int = 0
) -> Fetched | None:
    """What the leader of a partition has from an offset on: at least one batch, where there is one. None where it does
    not answer.
    """
    name, index = key
    partition = client.ports.cluster.image.topics.partition(name, index)
    if partition is None or partition.leader < 0:
        return None
    wanted = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=size)
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=size,
        isolation_level=isolation,
        session_id=0,
        session_epoch=-1,
        topics=[FetchTopic(topic=name, partitions=[wanted])],
    )
    try:
        answer = await client.ask(request, FetchResponse, broker_id=partition.leader, version=FETCH_VERSION)
    except Unanswered:
        return None
    if answer.error_code or not answer.responses or not answer.responses[0].partitions:
        return None
    found = answer.responses[0].partitions[0]
    records = found.records or b""
    assert isinstance(records, (bytes, bytearray, memoryview)), "a client in the process gets no slices of files"
    return Fetched(
        found.error_code,
        records,
        found.aborted_transactions or [],
        found.high_watermark,
        found.last_stable_offset,
        found.log_start_offset,
    )
