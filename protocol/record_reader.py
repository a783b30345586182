"""Decoding the records of a batch v2, and the messages of formats 0 and 1 in stored bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from moldau.protocol.compression import Codec, expand
from moldau.protocol.old_messages import encoded_records
from moldau.protocol.primitives import BytesLike, MalformedMessage, read_varint, read_varlong
from moldau.protocol.record_batch import HEADER_SIZE, MAGIC, BatchHeader, TimestampType, parse_header
from moldau.protocol.record_builder import Record, RecordHeader
from moldau.protocol.record_stream import record_runs

RECORDS_SIZE_MAX = 256 << 20
"""The most bytes of a batch's decompressed records, for a caller that sets no limit of its own."""
HAS_HEADERS: Final = b"a record with headers, or a malformed one"
"""What `value_without_headers` returns if it cannot tell the value. Compare it by `is`."""


def records_of(
    buffer: BytesLike,
    position: int = 0,
    header: BatchHeader | None = None,
    *,
    size_max: int = RECORDS_SIZE_MAX,
    record_size_max: int = RECORDS_SIZE_MAX,
) -> Iterator[Record]:
    """Decode the records of the batch at `position` one by one, with absolute offsets and effective timestamps.

    If the timestamp type of the batch is log append time, all records have the max timestamp of the batch. Control
    records are included. Raises `MalformedMessage` if the framing is wrong, and `RecordSizeExceeded` for a record of
    more than `record_size_max` bytes in a compressed batch. The caller verifies the checksum.
    """
    if header is None:
        header = parse_header(buffer, position, True)
    runs = record_runs_of(buffer, position, header, size_max=size_max, record_size_max=record_size_max)
    return decode_runs(runs, header)


def record_runs_of(
    buffer: BytesLike,
    position: int,
    header: BatchHeader,
    *,
    size_max: int = RECORDS_SIZE_MAX,
    record_size_max: int = RECORDS_SIZE_MAX,
) -> Iterable[tuple[bytes, int]]:
    """The encoded records of a batch, in runs of whole records with the number of records in each (`record_runs`).

    A batch that is not compressed is one run, and so is a message of format 0 or 1. Raises as `records_of`.
    """
    if header.magic != MAGIC:
        return (encoded_records(buffer, position, header, size_max=min(size_max, record_size_max)),)
    end = position + header.size
    if end > len(buffer):
        raise MalformedMessage(f"{len(buffer) - position} bytes cannot hold a batch of {header.size}")
    if header.records_count < 0:
        raise MalformedMessage(f"a batch of {header.records_count} records")
    stored = memoryview(buffer)[position + HEADER_SIZE : end]
    if header.codec is Codec.NONE:
        return ((bytes(stored), header.records_count),)
    return record_runs(expand(header.codec, stored, size_max=size_max), header.records_count, record_size_max)


def decode_records(
    body: bytes, header: BatchHeader, is_wanted: Callable[[bytes | None], bool] | None = None
) -> Iterator[Record]:
    """Decode the records in the decompressed body of a batch. With `is_wanted`, only records whose value it accepts are
    yielded; the framing of the others is checked, too. Raises `MalformedMessage`."""
    if header.records_count < 0:
        raise MalformedMessage(f"a batch of {header.records_count} records")
    return decode_run(body, header.records_count, header, is_wanted)


def decode_runs(runs: Iterable[tuple[bytes, int]], header: BatchHeader) -> Iterator[Record]:
    """Decode the records of a batch run by run. The next run is fetched when it is needed. Raises as `decode_run`."""
    for run, count in runs:
        yield from decode_run(run, count, header)


def decode_run(
    body: bytes, count: int, header: BatchHeader, is_wanted: Callable[[bytes | None], bool] | None = None
) -> Iterator[Record]:
    """Decode `count` records of a batch, which must fill the bytes of `body`. `is_wanted`: see `decode_records`. Raises
    `MalformedMessage`."""
    append_time = header.max_timestamp if header.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    position = 0
    for _ in range(count):
        try:
            size, start = read_varint(body, position)
            position = start + size
            if size < 0 or position > len(body):
                raise MalformedMessage(f"a record of {size} bytes in {len(body) - start}")
            test = is_wanted
            if test is not None:
                value = value_without_headers(body, start, position)
                if value is not HAS_HEADERS:
                    if not test(value):
                        continue
                    test = None
            record, read_end = decode_record(body, start, header.base_offset, header.base_timestamp, append_time)
        except IndexError:
            raise MalformedMessage("a record goes past the end of its batch") from None
        if read_end != position:
            raise MalformedMessage("a record is not as long as it says")
        if test is None or test(record.value):
            yield record
    if position != len(body):
        raise MalformedMessage(f"{len(body) - position} bytes after the records of a batch")


def value_without_headers(body: bytes, start: int, end: int) -> bytes | None:
    """The value of the record in `body[start:end]`; `HAS_HEADERS` if the record has headers or is malformed. Raises
    `IndexError` if the bytes end within it.

    Numbers of one byte are read without a call.
    """
    at = start + 2 if body[start + 1] < 0x80 else read_varlong(body, start + 1)[1]
    at = at + 1 if body[at] < 0x80 else read_varint(body, at)[1]
    key_size = body[at]
    if key_size < 0x80:
        key_size = key_size >> 1 ^ -(key_size & 1)
        at += 1
    else:
        key_size, at = read_varint(body, at)
    value_size, at = read_varint(body, at + key_size if key_size > 0 else at)
    value_end = at + value_size if value_size > 0 else at
    if value_end + 1 != end or body[value_end] or key_size < -1 or value_size < -1:
        return HAS_HEADERS
    return None if value_size < 0 else body[at:value_end]


def decode_record(
    body: bytes, position: int, base_offset: int, base_timestamp: int, append_time: int | None
) -> tuple[Record, int]:
    """Decode one record at `position`, which is after its size field. Returns the record and the position after it.
    Raises `IndexError` if the bytes end within it.

    Sizes of one byte, the most frequent ones, are decoded without a call.
    """
    timestamp_delta, position = read_varlong(body, position + 1)
    offset_delta = body[position]
    if offset_delta < 0x80:
        offset_delta = offset_delta >> 1 ^ -(offset_delta & 1)
        position += 1
    else:
        offset_delta, position = read_varint(body, position)
    key, position = read_nullable(body, position)
    value, position = read_nullable(body, position)
    headers: tuple[RecordHeader, ...] = ()
    if body[position]:
        headers, position = decode_headers(body, position)
    else:
        position += 1
    timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
    return Record(key, value, timestamp, headers, base_offset + offset_delta), position


def decode_headers(body: bytes, position: int) -> tuple[tuple[RecordHeader, ...], int]:
    count, position = read_varint(body, position)
    if count < 0:
        raise MalformedMessage("a record has a negative count of headers")
    headers: list[RecordHeader] = []
    for _ in range(count):
        name, position = read_nullable(body, position)
        if name is None:
            raise MalformedMessage("a record header has no key")
        value, position = read_nullable(body, position)
        headers.append((name.decode(errors="replace"), value))
    return tuple(headers), position


def read_nullable(body: bytes, position: int) -> tuple[bytes | None, int]:
    size = body[position]
    if size < 0x80:
        size = size >> 1 ^ -(size & 1)
        position += 1
    else:
        size, position = read_varint(body, position)
    if size < 0:
        if size != -1:
            raise MalformedMessage(f"a field of {size} bytes")
        return None, position
    end = position + size
    if end > len(body):
        raise IndexError
    return body[position:end], end
