"""The kernel that finds the fields of records for Arrow: compiled, it takes some tens of nanoseconds a record.

It writes one number or pair of numbers for each record into vectors that numpy and Arrow read in place. A key or a
value is a view of Arrow (16 bytes: its size, then up to 12 bytes of it, or four bytes of it, the number of a buffer
and a position there), so that no byte of a long field is copied here. This module needs librt, which readers of
records otherwise do without: only the Spark data source imports it, and reads with numpy where it cannot.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_i32_le, read_i64_le
from librt.vecs import vec
from mypy_extensions import i64

from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_batch import BatchHeader

KEYS: Final = 1
VALUES: Final = 2
TIMESTAMPS: Final = 4
HEADERS: Final = 8
"""The number of the headers column in `wanted`; the columns before it have smaller numbers."""
NULL: Final = -1
"""Both numbers of a view that stands for null, and the place of the headers of a record without headers."""
INLINE_SIZE: Final = 12
"""Bytes of a field that lie inside its view."""
PADDING: Final = bytes(INLINE_SIZE)
TIMESTAMP_MS_MAX: Final = (1 << 63) // 1000 - 1
"""The range of milliseconds that fits into 64 bits as microseconds."""
DELTA_MAX: Final = 1 << 61
"""Sums of two timestamps below it do not overflow."""


class RecordSpans:
    """The fields that were found, in the order of the records."""

    def __init__(self, capacity: i64, wanted: i64, start_offset: i64, end_offset: i64) -> None:
        """Room for `capacity` records with offsets in [start, end). `wanted` is a sum of `KEYS`, `VALUES`, `TIMESTAMPS`
        and `HEADERS`."""
        self.wanted: i64 = wanted
        self.start_offset: i64 = start_offset
        self.end_offset: i64 = end_offset
        self.count: i64 = 0
        self.offsets = zeros(capacity)
        self.timestamps = zeros(capacity if wanted & 4 else 0)
        """The timestamps in microseconds."""
        self.keys = zeros(2 * capacity if wanted & 1 else 0)
        self.values = zeros(2 * capacity if wanted & 2 else 0)
        self.headers = zeros(capacity if wanted & 8 else 0)
        """The place of the headers: buffer << 32 | position of the count of headers."""


def zeros(count: i64) -> vec[i64]:
    return vec[i64]([0] * count)


def read_spans(spans: RecordSpans, data: bytes, buffer: i64, position: i64, end: i64, header: BatchHeader) -> None:
    """Append the records of a batch that have wanted offsets; they must fill `data[position:end]`.

    `buffer` is the number of `data` in views. Raises `MalformedMessage` where the framing of a record, the count and
    the end do not agree. The contents of headers are not checked.
    """
    try:
        _read_spans(spans, data, buffer, position, end, header)
    except IndexError:
        raise MalformedMessage("a record goes past the end of its batch") from None


def _read_spans(spans: RecordSpans, data: bytes, buffer: i64, at: i64, end: i64, header: BatchHeader) -> None:
    count: i64 = header.records_count
    base_offset: i64 = header.base_offset
    delta_max: i64 = header.last_offset_delta
    has_append_time = header.attributes & 8 != 0
    base_time: i64 = header.max_timestamp if has_append_time else header.base_timestamp
    wanted: i64 = spans.wanted
    size: i64
    start_offset: i64 = spans.start_offset
    end_offset: i64 = spans.end_offset
    if count < 0 or count > end - at:
        raise MalformedMessage(f"{count} records in {end - at} bytes")
    for _ in range(count):
        size = data[at]
        at += 1
        if size >= 0x80:
            size, at = read_long(data, at - 1, 5)
        record_end: i64 = at + (size >> 1)
        if size & 1 or record_end > end:
            raise MalformedMessage("a record goes past the end of its batch")
        timestamp: i64 = data[at + 1]  # Byte 0 holds the attributes; no bit of them is defined.
        at += 2
        if timestamp >= 0x80:
            timestamp, at = read_long(data, at - 1, 10)
        timestamp = ((timestamp >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(timestamp & 1)
        delta: i64 = data[at]
        at += 1
        if delta >= 0x80:
            delta, at = read_long(data, at - 1, 5)
        if delta & 1 or delta >> 1 > delta_max:
            raise MalformedMessage("a record's offset is not one of its batch")
        offset: i64 = base_offset + (delta >> 1)
        size = data[at]
        at += 1
        if size >= 0x80:
            size, at = read_long(data, at - 1, 5)
        key_at: i64 = at
        key_size: i64 = (size >> 1) ^ -(size & 1)
        if key_size > 0:
            at += key_size
        if at >= record_end or key_size < NULL:
            raise MalformedMessage("a record goes past its end")
        size = data[at]
        at += 1
        if size >= 0x80:
            size, at = read_long(data, at - 1, 5)
        value_at: i64 = at
        value_size: i64 = (size >> 1) ^ -(size & 1)
        if value_size > 0:
            at += value_size
        if at >= record_end or value_size < NULL:
            raise MalformedMessage("a record goes past its end")
        has_headers = data[at] != 0
        if (at + 1 >= record_end) if has_headers else (at + 1 != record_end):
            raise MalformedMessage("a record is not as long as it says")
        if start_offset <= offset < end_offset:
            spans.offsets[spans.count] = offset
            if wanted & 4:
                microseconds = to_microseconds(base_time, 0 if has_append_time else timestamp)
                spans.timestamps[spans.count] = microseconds
            if wanted & 1:
                put_view(spans.keys, 2 * spans.count, data, buffer, key_at, key_size)
            if wanted & 2:
                put_view(spans.values, 2 * spans.count, data, buffer, value_at, value_size)
            if wanted & 8:
                spans.headers[spans.count] = buffer << 32 | at if has_headers else NULL
            spans.count += 1
        at = record_end
    if at != end:
        raise MalformedMessage(f"{count} records end at {at}, their batch at {end}")


def put_view(views: vec[i64], slot: i64, data: bytes, buffer: i64, at: i64, size: i64) -> None:
    """Write the view of `data[at:at + size]` into a slot; the slot is the index of the view's first half."""
    first: i64
    rest: i64 = 0
    bit: i64 = (size | 1) & 1  # Not a constant: mypyc would shift it as a C int of 32 bits.
    if size > INLINE_SIZE:
        first = i64(read_i32_le(data, at))
        rest = buffer | at << 32
    elif size <= 0:
        views[slot] = size
        views[slot + 1] = size
        return
    elif at + INLINE_SIZE > len(data):
        put_view(views, slot, data[at : at + size] + PADDING, buffer, 0, size)
        return
    else:
        first = i64(read_i32_le(data, at))
        if size < 4:
            first &= (bit << (size << 3)) - 1
        else:
            rest = read_i64_le(data, at + 4)
            if size < INLINE_SIZE:
                rest &= (bit << ((size - 4) << 3)) - 1
    views[slot] = size | first << 32
    views[slot + 1] = rest


def to_microseconds(base: i64, delta: i64) -> i64:
    """The microseconds of a sum of milliseconds. Raises `MalformedMessage` where they do not fit into 64 bits."""
    if -DELTA_MAX < base < DELTA_MAX and -DELTA_MAX < delta < DELTA_MAX:
        timestamp: i64 = base + delta
        if -TIMESTAMP_MS_MAX <= timestamp <= TIMESTAMP_MS_MAX:
            return timestamp * 1000
    raise MalformedMessage("a timestamp is out of range for Spark, which counts microseconds in 64 bits")


def read_long(data: bytes, at: i64, size_max: i64) -> tuple[i64, i64]:
    """Read a varint of at most `size_max` bytes. Returns its 64 bits before zig-zag decoding, as a signed number, and
    the position after it. Raises `MalformedMessage` where it is longer."""
    value: i64 = 0
    shift: i64 = 0
    while shift < 7 * size_max:
        byte: i64 = data[at]
        at += 1
        if shift == 63 and byte > 1:
            break
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise MalformedMessage(f"a number of more than {size_max} bytes")
