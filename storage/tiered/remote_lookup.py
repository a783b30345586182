"""Lookups in remote segments: by offset, by timestamp, and of aborted transactions.

Each lookup narrows the range with the indexes of a segment first (`index_cache.py`) and then reads a piece of its .log
object. Bytes from the storage are checked like bytes from a disk: a malformed batch, or a batch outside of its segment,
raises `CorruptObject`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, NamedTuple, Protocol

from moldau.protocol.compression import RecordSizeExceeded
from moldau.protocol.primitives import BytesLike, MalformedMessage
from moldau.protocol.record_batch import HEADER_SIZE, BatchHeader, crc_is_valid, parse_header
from moldau.protocol.record_reader import records_of
from moldau.storage.log.reading import TimestampedOffset
from moldau.storage.segment.transaction_index import AbortedTransaction
from moldau.storage.tiered.index_cache import RemoteIndexes
from moldau.storage.tiered.layout import ObjectKind, object_key
from moldau.storage.tiered.metadata.remote_log import RemoteLog
from moldau.storage.tiered.metadata.remote_segment import RemotePartition, RemoteSegment
from moldau.storage.tiered.port import CorruptObject

CHUNK_SIZE: Final = 1 << 20
"""The size (bytes) of one read of the .log object, unless a single batch is larger."""


class RangeReader(Protocol):
    """The method of `RemoteStorage` that a lookup needs. A cache in front of a storage has it, too."""

    async def get(self, key: str, position: int, size: int) -> BytesLike:
        """Read bytes of an object, as `RemoteStorage.get` does."""


class RemoteBatch(NamedTuple):
    """A whole batch of a remote segment."""

    position: int
    """The position of the batch in the .log object."""
    header: BatchHeader
    data: memoryview


class RemoteRead(NamedTuple):
    """Consecutive whole batches of a remote segment."""

    data: memoryview
    position: int
    """The position of the first batch in the .log object."""
    next_offset: int
    """The offset after the last batch."""

    @property
    def end_position(self) -> int:
        """The position in the .log object at which a sequential reader continues."""
        return self.position + len(self.data)


def log_key(partition: RemotePartition, segment: RemoteSegment) -> str:
    return object_key(partition, segment.start_offset, segment.segment_id, ObjectKind.LOG)


class _Chunk(NamedTuple):
    """Whole batches of a remote segment that came with one request."""

    position: int
    """The position of the first batch in the .log object."""
    data: memoryview
    headers: list[tuple[int, BatchHeader]]
    """The headers of the batches, each with the index at which its batch begins in `data`; never empty."""


async def _chunks_from(
    storage: RangeReader, partition: RemotePartition, segment: RemoteSegment, position: int, chunk_size: int
) -> AsyncIterator[_Chunk]:
    """Yield the batches of a segment from `position` on, in pieces of about `chunk_size` bytes. A piece consists of
    whole batches with valid checksums."""
    key = log_key(partition, segment)
    rest = memoryview(b"")
    while position < segment.size:
        wanted = max(chunk_size, _size_at(rest, key, position, segment) if len(rest) >= HEADER_SIZE else 0)
        read = await storage.get(key, position + len(rest), min(wanted, segment.size - position) - len(rest))
        if not len(read):
            raise CorruptObject(f"{key} ends at {position + len(rest)}, the metadata says {segment.size}")
        data = memoryview(bytes(rest) + bytes(read)) if len(rest) else memoryview(read)
        headers = []
        inside = 0
        while inside + HEADER_SIZE <= len(data):
            header = _header(data, inside, key, position + inside, segment)
            if inside + header.size > len(data):
                break
            if not crc_is_valid(data, inside, header):
                raise CorruptObject(f"{key}: the checksum of the batch at offset {header.base_offset} is wrong")
            headers.append((inside, header))
            inside += header.size
        if headers:
            yield _Chunk(position, data, headers)
        rest = data[inside:]
        position += inside
        if position + len(rest) == segment.size and len(rest):
            raise CorruptObject(f"{key}: no whole batch at position {position} of {segment.size}")


async def batches_from(
    storage: RangeReader,
    partition: RemotePartition,
    segment: RemoteSegment,
    position: int,
    *,
    chunk_size: int = CHUNK_SIZE,
) -> AsyncIterator[RemoteBatch]:
    """Yield the batches of a segment, with valid checksums, from the batch at `position` to the end.

    Raises `CorruptObject`, also for an object that ends early, and other subclasses of `RemoteStorageError`.
    """
    async for chunk in _chunks_from(storage, partition, segment, position, chunk_size):
        for inside, header in chunk.headers:
            yield RemoteBatch(chunk.position + inside, header, chunk.data[inside : inside + header.size])


def _size_at(data: memoryview, key: str, position: int, segment: RemoteSegment) -> int:
    return _header(data, 0, key, position, segment).size


def _header(data: memoryview, inside: int, key: str, position: int, segment: RemoteSegment) -> BatchHeader:
    try:
        header = parse_header(data, inside)
    except MalformedMessage as malformed:
        raise CorruptObject(f"{key}: no batch at position {position}: {malformed}") from None
    if position + header.size > segment.size:
        raise CorruptObject(f"{key}: the batch at position {position} ends past the object")
    if not segment.start_offset <= header.base_offset <= header.last_offset <= segment.last_offset:
        raise CorruptObject(f"{key}: the batch at position {position} has offsets of another segment")
    return header


async def read_batches_from(
    storage: RangeReader,
    partition: RemotePartition,
    segment: RemoteSegment,
    position: int,
    offset: int,
    size_max: int,
) -> RemoteRead | None:
    """Read whole batches, beginning with the batch that contains `offset`, or the first one after it. The result has at
    least one batch, and as many as fit into `size_max` bytes and one request.

    `position`: the position of a batch at or before the offset (`RemoteIndexes.offset_index`), or the end of the last
    read. Returns None if all batches of the segment end before the offset, because cleaning has removed the last ones.
    Raises `RemoteStorageError`.
    """
    async for chunk in _chunks_from(storage, partition, segment, position, max(size_max, HEADER_SIZE)):
        found = [(inside, header) for inside, header in chunk.headers if header.last_offset >= offset]
        if not found:
            continue
        start, last = found[0]
        end = start + last.size
        for inside, header in found[1:]:
            if inside + header.size - start > size_max:
                break
            end, last = inside + header.size, header
        return RemoteRead(chunk.data[start:end], chunk.position + start, last.last_offset + 1)
    return None


async def find_timestamp(
    storage: RangeReader,
    partition: RemotePartition,
    segment: RemoteSegment,
    indexes: RemoteIndexes,
    timestamp: int,
    start_offset: int,
    record_size_max: int,
) -> TimestampedOffset | None:
    """Return the first record of a segment whose timestamp is at or after `timestamp` (ms) and whose offset is at or
    past `start_offset`; None if there is none. Raises `RemoteStorageError`, OSError, and `RecordSizeExceeded`."""
    if segment.max_timestamp_ms < timestamp:
        return None
    indexed_offset = indexes.time_index.entry_at_or_before(timestamp)[1]
    position = indexes.offset_index.position_at_or_before(max(indexed_offset, start_offset))
    async for _, header, data in batches_from(storage, partition, segment, position):
        if header.max_timestamp >= timestamp and header.last_offset >= start_offset:
            for record in _records(partition, segment, data, record_size_max):
                if record.timestamp >= timestamp and record.offset >= start_offset:
                    return TimestampedOffset(record.timestamp, record.offset, header.partition_leader_epoch)
    return None


class _Stamped(NamedTuple):
    timestamp: int
    offset: int


def _records(
    partition: RemotePartition, segment: RemoteSegment, data: BytesLike, record_size_max: int
) -> list[_Stamped]:
    try:
        records = records_of(bytes(data), record_size_max=record_size_max)
        return [_Stamped(record.timestamp, record.offset) for record in records]
    except RecordSizeExceeded:
        raise
    except MalformedMessage as malformed:
        raise CorruptObject(f"{log_key(partition, segment)}: {malformed}") from None


async def aborted_transactions(
    log: RemoteLog,
    epoch: int,
    first_offset: int,
    collect: Callable[[RemoteSegment], Awaitable[tuple[list[AbortedTransaction], bool]]],
) -> tuple[list[AbortedTransaction], bool]:
    """Collect aborted transactions from the segments of a leader epoch, from the segment that contains `first_offset`
    on. Returns them in the order of their markers, and whether no later segment, remote or local, can have another one.

    `collect` searches the transaction index of one segment for the transactions that overlap a read, and returns what
    `TransactionIndex.overlapping_transactions` does. A marker may be in a later segment than the records, so the search
    continues from segment to segment. Segments without an index are skipped. If the result is False, the caller
    continues in the next epoch, or in the local log.
    """
    found: list[AbortedTransaction] = []
    segment = log.next_with_transaction_index(epoch, first_offset)
    while segment is not None:
        more, is_complete = await collect(segment)
        found += more
        if is_complete:
            return found, True
        segment = log.next_with_transaction_index(epoch, segment.last_offset + 1)
    return found, False
