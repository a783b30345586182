"""Finds the positions of the fields of many records at once.

A loop finds the boundaries of the records, each of which depends on the one before. numpy reads all other fields, for
all records of a chunk at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from moldau.protocol.primitives import MalformedMessage, read_varint

Integers: TypeAlias = NDArray[np.int64]
Bytes: TypeAlias = NDArray[np.uint8]

NULL = -1
VARINT_SIZE_MAX = 5
VARLONG_SIZE_MAX = 10


@dataclass(frozen=True, slots=True)
class RecordFields:
    """The fields of several records, as arrays with one element for each record. Positions count from the beginning of
    the buffer, and a size of -1 stands for null."""

    timestamp_delta: Integers
    offset_delta: Integers
    key_position: Integers
    key_size: Integers
    value_position: Integers
    value_size: Integers
    headers_position: Integers
    """The position of the record's count of headers."""
    has_headers: NDArray[np.bool_]


def record_positions(buffer: bytes, position: int, end: int, count: int, positions: list[int]) -> None:
    """Append the position of each of `count` records, which must fill buffer[position:end], to `positions`. A record
    begins at its size field.

    Raises `MalformedMessage` if the count, the sizes and the end do not agree.
    """
    if not 0 <= count <= end - position:
        raise MalformedMessage(f"{count} records in {end - position} bytes")
    append = positions.append
    try:
        for _ in range(count):
            append(position)
            size = buffer[position]
            if size < 0x80:
                position += 1 + (size >> 1)
            else:
                second = buffer[position + 1]
                if second < 0x80:
                    size = size & 0x7F | second << 7
                    position += 2 + (size >> 1)
                else:
                    decoded, position = read_varint(buffer, position)
                    size = decoded << 1 ^ decoded >> 31
                    position += decoded
            if size & 1:
                raise MalformedMessage("a record of a negative size")
    except IndexError:
        raise MalformedMessage("a record goes past the end of its batch") from None
    if position != end:
        raise MalformedMessage(f"{count} records end at {position}, their batch at {end}")


def read_fields(buffer: Bytes, positions: Integers, end: int) -> RecordFields:
    """Read the fields of the records that begin at these positions, back to back up to `end`.

    Raises `MalformedMessage` if the size of a record is wrong. The contents of headers are not checked.
    """
    try:
        return _read_fields(buffer, positions, end)
    except IndexError:
        raise MalformedMessage("a record goes past the end of its batch") from None


def _read_fields(buffer: Bytes, positions: Integers, end: int) -> RecordFields:
    ends = np.append(positions[1:], end)
    at = positions.copy()
    read_varints(buffer, at, VARINT_SIZE_MAX)
    at += 1  # the attributes of a record, none of which is defined
    timestamp_delta = read_varints(buffer, at, VARLONG_SIZE_MAX)
    offset_delta = read_varints(buffer, at, VARINT_SIZE_MAX)
    key_size = read_varints(buffer, at, VARINT_SIZE_MAX)
    key_position = at.copy()
    skip_nullable(at, key_size, ends)
    value_size = read_varints(buffer, at, VARINT_SIZE_MAX)
    value_position = at.copy()
    skip_nullable(at, value_size, ends)
    headers_position = at
    has_headers = buffer[headers_position] != 0
    if not bool(np.all(np.where(has_headers, headers_position + 1 < ends, headers_position + 1 == ends))):
        raise MalformedMessage("a record is not as long as it says")
    return RecordFields(
        timestamp_delta,
        offset_delta,
        key_position,
        key_size,
        value_position,
        value_size,
        headers_position,
        has_headers,
    )


def skip_nullable(at: Integers, size: Integers, ends: Integers) -> None:
    """Advance the positions `at` past nullable fields of these sizes. Raises `MalformedMessage` if a field crosses the
    end of its record."""
    if bool(np.any(size < NULL)):
        raise MalformedMessage("a field of a negative size")
    at += np.maximum(size, 0)
    if bool(np.any(at >= ends)):
        raise MalformedMessage("a record goes past its end")


def read_varints(buffer: Bytes, at: Integers, size_max: int) -> Integers:
    """Read the zig-zag varints at the positions `at`, of at most `size_max` bytes each, and advance the positions past
    them.

    Raises `IndexError` past the buffer, and `MalformedMessage` for a longer number.
    """
    byte = buffer[at]
    raw = (byte & 0x7F).astype(np.uint64)
    at += 1
    rows = np.flatnonzero(byte >= 0x80)
    size = 1
    while rows.size:
        if size == size_max:
            raise MalformedMessage(f"a number of more than {size_max} bytes")
        byte = buffer[at[rows]]
        if size == VARLONG_SIZE_MAX - 1 and bool(np.any(byte > 1)):
            raise MalformedMessage("a number of more than 64 bits")
        raw[rows] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * size)
        at[rows] += 1
        rows = rows[byte >= 0x80]
        size += 1
    one = np.uint64(1)
    return ((raw >> one) ^ (np.uint64(0) - (raw & one))).view(np.int64)
