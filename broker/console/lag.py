"""How far a group is behind: the records that a read_committed consumer still receives, and the age of the first one.

    committed offset ──▶ batches up to the last stable offset, without markers and aborted ones ──▶ their records

The difference of two offsets counts markers, aborted records and what compaction removed. So the batches are read and
their records counted, as far as `Budget` allows; beyond it the difference of the offsets is an upper bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
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
"""Bytes of one Fetch: their batches are walked in one step, less than 2 ms for batches of one small record."""
EXPANDED_SIZE_MAX: Final = 1 << 20
"""Bytes to which a batch is expanded, for the records of it that are before the committed offset."""


class Budget:
    """The bytes that one page may read in order to count records."""

    def __init__(self, page: int, partition: int) -> None:
        self.left = page
        self.partition = partition


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
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
) -> list[PartitionLag]:
    """The lag of each partition, in the order of topics and partitions."""
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
            lags.append(PartitionLag(*key, offset, end, 0, True, 0))
            continue
        counted = await _count(client, key, begin, end, budget, isolation)
        behind_ms = 0 if counted.first_ms is None and counted.is_exact else None
        if counted.first_ms is not None:
            behind_ms = max(now_ms - counted.first_ms, 0)
        lags.append(PartitionLag(*key, offset, end, counted.records, counted.is_exact, behind_ms))
    return lags


@dataclass(slots=True)
class Counted:
    """What was counted so far, from one offset to another."""

    offset: int
    """The next offset to look at."""
    records: int = 0
    first_ms: int | None = None
    """The timestamp of the first record."""
    is_exact: bool = False


async def _count(client: KafkaClient, key: Partition, begin: int, end: int, budget: Budget, isolation: int) -> Counted:
    counted = Counted(begin)
    left = budget.partition
    while counted.offset < end and left > 0 and budget.left > 0:
        fetched = await fetch(client, key, counted.offset, PIECE_SIZE, isolation)
        if fetched is None or fetched.error or not fetched.records:
            break
        size = len(fetched.records)
        left, budget.left = left - size, budget.left - size
        before = counted.offset
        try:
            count_batches(counted, fetched.records, fetched.aborted, end)
        except MalformedMessage:
            break
        if counted.offset == before:
            break
    counted.is_exact = counted.offset >= end
    if not counted.is_exact:
        counted.records += end - counted.offset
    return counted


def count_batches(counted: Counted, records: BytesLike, aborted: Iterable[AbortedTransaction], end: int) -> None:
    """Count the records of whole batches that a read_committed consumer receives from `counted.offset` on, up to `end`.

    Raises `MalformedMessage`.
    """
    open_aborts: dict[int, list[int]] = {}
    for each in sorted(aborted, key=lambda each: each.first_offset):
        open_aborts.setdefault(each.producer_id, []).append(each.first_offset)
    for position, header in iterate_batches(records):
        if header.base_offset >= end:
            counted.offset = end
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
    if header.records_count <= 0:
        return
    timestamp = header.max_timestamp if header.timestamp_type else header.base_timestamp
    if header.base_offset >= counted.offset and header.delete_horizon_ms is None:
        counted.records += header.records_count
    elif header.records_count == header.last_offset_delta + 1 and header.delete_horizon_ms is None:
        counted.records += header.last_offset - counted.offset + 1
    else:
        later = [
            each
            for each in records_of(records, position, header, size_max=EXPANDED_SIZE_MAX)
            if each.offset >= counted.offset
        ]
        counted.records += len(later)
        if not later:
            return
        timestamp = later[0].timestamp
    if counted.first_ms is None:
        counted.first_ms = timestamp


@dataclass(frozen=True, slots=True)
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
