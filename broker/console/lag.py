"""Computes the lag of a group: the number of records that a read_committed consumer still receives, and the age of the
first one.

    committed offset ──▶ batches up to the last stable offset, without markers and aborted ones ──▶ their records

The difference between two offsets would also count markers, aborted records and records that compaction removed. So the
batches are read and their records counted, as far as a `CountingBudget` allows. For the rest the difference between the
offsets is an upper bound. If the committed offset lies inside a batch, the records of the batch are decoded in a worker
process (console/decoder.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from moldau.broker.console.decoding.counting import NO_OFFSETS, OffsetSet, RecordCount
from moldau.broker.console.kafka_client import KafkaClient, Unanswered
from moldau.broker.console.page import SLICE, gather_results
from moldau.broker.console.partitions import EARLIEST, LATEST, READ_COMMITTED, Partition, offsets_of, own_ends
from moldau.broker.runtime.limited_work import WorkProcessEnded
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import AbortedTransaction, FetchPartition, FetchRequest, FetchResponse, FetchTopic
from moldau.protocol.primitives import BytesLike

log = logging.getLogger("moldau.console")
FETCH_VERSION: Final = 12
"""The last version of Fetch that names topics by their names."""
PIECE_SIZE: Final = 1 << 17
"""The most bytes of one Fetch. Its batches are counted in one step."""


class CountingBudget:
    """The bytes that may still be read to count records: of one page, and of each partition."""

    def __init__(self, page: int, partition: int) -> None:
        self.left = page
        self.partition = partition


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PartitionLag:
    topic: str
    partition: int
    committed: int | None
    """The committed offset, from which the group continues; None if it has committed none."""
    end: int | None
    """The last stable offset; None if the leader did not report it."""
    records: int | None
    """The number of records that the group has not read; None if the committed offset or the end is not known."""
    is_exact: bool
    """Whether the records were counted. If not, `records` is an upper bound."""
    behind_ms: int | None
    """The age of the first record that the group has not read: 0 if it has read all, None if the age is not known."""
    metadata: str = ""
    """The metadata text that the group committed with its offset."""
    is_past_end: bool = False
    """Whether the committed offset is past the end, because the log was truncated or the topic was created again. The
    group's consumers then continue from where `auto.offset.reset` says."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PartitionEnds:
    """The start offsets and the end offsets of partitions, as their leaders report them."""

    first: Mapping[Partition, int]
    last: Mapping[Partition, int]
    """The last stable offsets, or the high watermarks."""


async def ends_of(
    client: KafkaClient, partitions: Iterable[Partition], isolation: int = READ_COMMITTED
) -> PartitionEnds:
    """Get the start and end offsets of partitions: from this broker's own logs, and by requests to the other
    leaders.
    """
    own, others = await own_ends(client, partitions, isolation)
    first = {key: ends[0] for key, ends in own.items()}
    last = {key: ends[1] for key, ends in own.items()}
    if others:
        further = await gather_results(
            offsets_of(client, others, EARLIEST), offsets_of(client, others, LATEST, isolation)
        )
        first |= further[0]
        last |= further[1]
    return PartitionEnds(first, last)


async def partition_lags(
    client: KafkaClient,
    committed: Mapping[Partition, int | None],
    ends: PartitionEnds,
    budget: CountingBudget,
    isolation: int = READ_COMMITTED,
    finished: Mapping[Partition, OffsetSet | None] | None = None,
) -> list[PartitionLag]:
    """Compute the lag of each partition, sorted by topic and partition.

    For a share group, `finished` has the offsets of each partition that are acknowledged or archived. They do not count
    as lag. If they are None, because they are not known, the lag of the partition is an upper bound.
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
        counted = RecordCount(begin, end, left_out or NO_OFFSETS)
        counted = await count_unread(client, key, counted, budget, isolation)
        is_exact = counted.offset >= end and left_out is not None
        records = counted.records + counted.offsets_left
        behind_ms = 0 if counted.first_ms is None and is_exact else None
        if counted.first_ms is not None:
            behind_ms = max(now_ms - counted.first_ms, 0)
        lags.append(PartitionLag(*key, offset, end, records, is_exact, behind_ms))
    return lags


async def count_unread(
    client: KafkaClient,
    key: Partition,
    counted: RecordCount,
    budget: CountingBudget,
    isolation: int,
    *,
    dates_roughly: bool = False,
) -> RecordCount:
    """Continue a count of records, as far as the budget, the leader and the worker process allow. Returns the new
    count.
    """
    left = budget.partition
    while counted.offset < counted.end and left > 0 and budget.left > 0:
        fetched = await fetch(client, key, counted.offset, PIECE_SIZE, isolation)
        if fetched is None or fetched.error or not fetched.records:
            return counted
        size = len(fetched.records)
        left, budget.left = left - size, budget.left - size
        before = counted.offset
        try:
            # In the process of the node the records are a view of a buffer of the log.
            counted, is_whole = await client.ports.decoder.count(
                counted, bytes(fetched.records), fetched.aborted, client.asker, dates_roughly=dates_roughly
            )
        except WorkProcessEnded as ended:
            log.warning("records of %s-%d from offset %d on are not counted: %s", *key, before, ended)
            return counted
        if not is_whole or counted.offset == before:
            return counted
    return counted


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FetchedPartition:
    """The answer of a partition's leader to one Fetch."""

    error: int
    records: BytesLike
    """Whole batches; the last one may be cut short."""
    aborted: Sequence[AbortedTransaction]
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


async def fetch(
    client: KafkaClient, key: Partition, offset: int, size: int, isolation: int, *, wait_ms: int = 0
) -> FetchedPartition | None:
    """Fetch from the leader of a partition, beginning at `offset`: about `size` bytes, but at least one batch if there
    is one. None if the leader does not answer. The error is THROTTLING_QUOTA_EXCEEDED if it throttles the user.
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
    if answer.throttle_time_ms and not answer.responses:
        return FetchedPartition(ErrorCode.THROTTLING_QUOTA_EXCEEDED, b"", [], -1, -1, -1)
    if answer.error_code or not answer.responses or not answer.responses[0].partitions:
        return None
    found = answer.responses[0].partitions[0]
    records = found.records or b""
    assert isinstance(records, (bytes, bytearray, memoryview)), "a client in the process gets no slices of files"
    return FetchedPartition(
        found.error_code,
        records,
        found.aborted_transactions or [],
        found.high_watermark,
        found.last_stable_offset,
        found.log_start_offset,
    )
