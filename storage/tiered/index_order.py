"""Whether the bytes of an offset index and of a time index can be trusted: all entries are looked at."""

from __future__ import annotations

from array import array
from operator import le, lt
from sys import byteorder

from moldau.storage.segment.offset_index import ENTRY as OFFSET_ENTRY
from moldau.storage.segment.time_index import ENTRY as TIME_ENTRY


def offset_index_problem(data: bytes, last_offset_delta: int, size: int) -> str | None:
    """What is wrong with the offset index of a segment of `size` bytes, None where nothing is.

    `last_offset_delta`: the last offset of the segment, relative to its base offset. Offsets must increase and
    positions must not decrease; the first batch never has an entry. Whether a batch begins at each position is not
    known here.
    """
    if len(data) % OFFSET_ENTRY.size:
        return f"{len(data)} bytes are not whole entries"
    columns = array("i", data)
    if byteorder == "little":
        columns.byteswap()
    offsets, positions = columns[0::2], columns[1::2]
    if not offsets:
        return None
    if offsets[0] < 0 or positions[0] < 1 or offsets[-1] > last_offset_delta or positions[-1] >= size:
        return "an entry is outside of the segment"
    is_in_order = all(map(lt, offsets, offsets[1:])) and all(map(le, positions, positions[1:]))
    return None if is_in_order else "the entries are out of order"


def time_index_problem(data: bytes, last_offset_delta: int) -> str | None:
    """What is wrong with a time index, None where nothing is. Timestamps must increase, offsets must not decrease."""
    if len(data) % TIME_ENTRY.size:
        return f"{len(data)} bytes are not whole entries"
    timestamps = [timestamp for timestamp, _ in TIME_ENTRY.iter_unpack(data)]
    offsets = [offset for _, offset in TIME_ENTRY.iter_unpack(data)]
    if not offsets:
        return None
    if timestamps[0] < 0 or offsets[0] < 0 or offsets[-1] > last_offset_delta:
        return "an entry is outside of the segment"
    is_in_order = all(map(lt, timestamps, timestamps[1:])) and all(map(le, offsets, offsets[1:]))
    return None if is_in_order else "the entries are out of order"
