"""Computes the records that remain in a batch after the records named by an erase order are removed. The loop over the
records is in this module so that mypyc compiles it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from moldau.protocol.erase_orders import Run
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_batch import read_raw_varint, read_raw_varlong
from moldau.storage.log_config import INT64_MAX

if TYPE_CHECKING:
    from mypy_extensions import i64


class KeptRecords(NamedTuple):
    """The records that remain of a run of whole records."""

    parts: Sequence[memoryview]
    """The remaining records as they are encoded, without a copy. Neighbours are in one part."""
    records_count: int
    max_timestamp_delta: int | None
    """In ms; None if no record remains."""
    erased: Sequence[int]
    """The offsets of the removed records."""


def kept_records(records: bytes, base_offset: i64, named: Sequence[Run]) -> KeptRecords:
    """Remove the records whose offsets are in `named`, and return the remaining ones. `records` is a run of whole
    encoded records of one batch, which begins at `base_offset`. The runs of `named` are sorted and disjoint. Raises
    `MalformedMessage` if the framing of the records is wrong.
    """
    parts: list[memoryview] = []
    view = memoryview(records)
    erased: list[int] = []
    count: i64 = 0
    max_delta: i64 = 0
    slot: i64 = 0
    previous: i64 = -1
    first: i64
    last: i64
    first, last = _bounds(named, slot)
    kept_from: i64 = 0
    at: i64 = 0
    end: i64 = len(records)
    try:
        while at < end:
            start = at
            size: i64
            raw: i64
            size, at = read_raw_varint(records, at)
            record_end: i64 = at + (size >> 1)
            raw, at = read_raw_varlong(records, at + 1)
            timestamp_delta: i64 = ((raw >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(raw & 1)
            raw, at = read_raw_varint(records, at)
            if record_end > end or at > record_end:
                raise MalformedMessage(f"a record of {size >> 1} bytes goes past the end of its batch")
            at = record_end
            offset: i64 = base_offset + ((raw >> 1) ^ -(raw & 1))
            if offset < previous:
                slot = 0  # Nothing else says that the offsets of a batch ascend.
                first, last = _bounds(named, slot)
            previous = offset
            while offset > last:
                slot += 1
                first, last = _bounds(named, slot)
            if offset < first:
                max_delta = timestamp_delta if count == 0 else max(max_delta, timestamp_delta)
                count += 1
                continue
            erased.append(offset)
            if start > kept_from:
                parts.append(view[kept_from:start])
            kept_from = record_end
    except IndexError:
        raise MalformedMessage("a record goes past the end of its batch") from None
    if end > kept_from:
        parts.append(view[kept_from:end])
    return KeptRecords(parts, count, max_delta if count else None, erased)


def _bounds(named: Sequence[Run], slot: i64) -> tuple[i64, i64]:
    """Return the first and the last offset of the run at index `slot`. After the last run, both are `INT64_MAX`, which
    no record has.
    """
    if slot < len(named):
        run = named[slot]
        return run.first, run.last
    return INT64_MAX, INT64_MAX
