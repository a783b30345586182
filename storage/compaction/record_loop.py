"""The inner loops of the cleaner: over the records of a batch as they are encoded, without building a value.

Ordinary typed Python that `building/` compiles, with the same results in both forms. The framing of a record is in
protocol/record_walk.py. Headers are not looked at: the size of a record says where it ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.primitives import MalformedMessage, varint
from protocol.record_walk import read_raw_varint, read_raw_varlong
from storage.compaction.offset_map import OffsetMap

if TYPE_CHECKING:
    from mypy_extensions import i64

INT64_MIN = -(1 << 63)


class Selection:
    """What the cleaner keeps of the records of one batch."""

    __slots__ = ("has_tombstones", "kept_count", "max_timestamp_delta", "spans", "without_key_count")

    def __init__(self) -> None:
        self.kept_count: int = 0
        self.max_timestamp_delta: int = INT64_MIN
        """The largest timestamp delta of the records that are kept."""
        self.has_tombstones: bool = False
        """Whether a record that is kept has no value."""
        self.without_key_count: int = 0
        self.spans: list[tuple[int, int]] = []
        """Where the records that are kept lie in the last run: (start, end), neighbours put together."""


def index_run(run: bytes, count: int, base_offset: int, start_offset: int, offsets: OffsetMap) -> int:
    """Put the keys of the records at or past `start_offset` into the map; the run must hold exactly `count` records.

    Returns how many records were read: less than `count` where the map is full. Raises `MalformedMessage`.
    """
    try:
        return index(run, count, base_offset, start_offset, offsets)
    except IndexError:
        raise MalformedMessage("a record goes past the end of its batch") from None


def index(run: bytes, count: i64, base_offset: i64, start_offset: i64, offsets: OffsetMap) -> int:
    limit: i64 = len(run)
    at: i64 = 0
    number: i64
    for number in range(count):
        size: i64 = run[at]
        at += 1
        if size >= 0x80:
            size, at = read_raw_varint(run, at - 1)
        end: i64 = at + (size >> 1)
        if size & 1 or end > limit:
            raise MalformedMessage(f"record {number} goes past the end of its batch")
        delta: i64 = run[at + 1]  # byte 0 is the attributes, none of which is defined
        at += 2
        if delta >= 0x80:
            delta, at = read_raw_varlong(run, at - 1)
        delta = run[at]
        at += 1
        if delta >= 0x80:
            delta, at = read_raw_varint(run, at - 1)
        size = run[at]
        at += 1
        if size >= 0x80:
            size, at = read_raw_varint(run, at - 1)
        if size & 1 == 0:
            key_end: i64 = at + (size >> 1)
            if key_end > end:
                raise MalformedMessage(f"record {number} has a key past its end")
            offset: i64 = base_offset + ((delta >> 1) ^ -(delta & 1))
            if offset >= start_offset:
                if offsets.count >= offsets.count_max:
                    return number
                offsets.put(run[at:key_end], offset)
        elif size != 1:
            raise MalformedMessage(f"record {number} has a key of a negative size")
        at = end
    if at != limit:
        raise MalformedMessage(f"{limit - at} bytes after the {count} records of the batch")
    return count


def select_run(
    run: bytes, count: int, base_offset: int, keeps_tombstones: bool, offsets: OffsetMap, selection: Selection
) -> None:
    """Select the records of a run that are kept: all past the end of the map, and before it the latest of each key.

    Before the end of the map, a tombstone is kept only with `keeps_tombstones`. Raises `MalformedMessage`.
    """
    try:
        select(run, count, base_offset, keeps_tombstones, offsets, selection)
    except IndexError:
        raise MalformedMessage("a record goes past the end of its batch") from None


def select(
    run: bytes, count: i64, base_offset: i64, keeps_tombstones: bool, offsets: OffsetMap, selection: Selection
) -> None:
    limit: i64 = len(run)
    latest_offset: i64 = offsets.latest_offset
    max_delta: i64 = selection.max_timestamp_delta
    kept_count: i64 = 0
    span_start: i64 = -1
    spans: list[tuple[int, int]] = []
    at: i64 = 0
    number: i64
    for number in range(count):
        start: i64 = at
        size: i64 = run[at]
        at += 1
        if size >= 0x80:
            size, at = read_raw_varint(run, at - 1)
        end: i64 = at + (size >> 1)
        if size & 1 or end > limit:
            raise MalformedMessage(f"record {number} goes past the end of its batch")
        timestamp: i64 = run[at + 1]
        at += 2
        if timestamp >= 0x80:
            timestamp, at = read_raw_varlong(run, at - 1)
        delta: i64 = run[at]
        at += 1
        if delta >= 0x80:
            delta, at = read_raw_varint(run, at - 1)
        offset: i64 = base_offset + ((delta >> 1) ^ -(delta & 1))
        size = run[at]
        at += 1
        if size >= 0x80:
            size, at = read_raw_varint(run, at - 1)
        is_kept = offset > latest_offset
        key_end: i64 = at
        if size & 1 == 0:
            key_end = at + (size >> 1)
            if key_end >= end:
                raise MalformedMessage(f"record {number} has a key past its end")
        elif size != 1:
            raise MalformedMessage(f"record {number} has a key of a negative size")
        is_tombstone = run[key_end] == 1
        if not is_kept:
            if size == 1:
                selection.without_key_count += 1
            elif keeps_tombstones or not is_tombstone:
                is_kept = offset >= offsets.get(run[at:key_end])
        if is_kept:
            kept_count += 1
            if span_start < 0:
                span_start = start
            timestamp = ((timestamp >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(timestamp & 1)
            if timestamp > max_delta:
                max_delta = timestamp
            if is_tombstone:
                selection.has_tombstones = True
        elif span_start >= 0:
            spans.append((span_start, start))
            span_start = -1
        at = end
    if at != limit:
        raise MalformedMessage(f"{limit - at} bytes after the {count} records of the batch")
    if span_start >= 0:
        spans.append((span_start, limit))
    selection.spans = spans
    selection.kept_count += kept_count
    selection.max_timestamp_delta = max_delta


def shifted(records: bytes, shift: int) -> bytes:
    """The same records with `shift` (ms) added to every timestamp delta. The framing was checked before."""
    out = bytearray()
    at: i64 = 0
    end: i64 = len(records)
    while at < end:
        size: i64
        raw: i64
        size, at = read_raw_varint(records, at)
        record_end: i64 = at + (size >> 1)
        attributes = records[at : at + 1]
        raw, at = read_raw_varlong(records, at + 1)
        delta: i64 = ((raw >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(raw & 1)
        encoded = varint(delta + shift)
        out += varint(1 + len(encoded) + record_end - at)
        out += attributes
        out += encoded
        out += records[at:record_end]
        at = record_end
    return bytes(out)
