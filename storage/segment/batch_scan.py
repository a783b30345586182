"""Walking the batch headers of a .log file without reading the records between them."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.primitives import BytesLike, MalformedMessage
from moldau.protocol.record_batch import (
    HEADER_SIZE,
    LENGTH_MIN,
    LOG_OVERHEAD,
    BatchHeader,
    crc_is_valid,
    parse_header,
)
from moldau.storage.files.port import Readable

CHUNK_SIZE = 8192
"""Bytes read at once: about the distance between two index entries, so that a lookup costs one or two reads."""
_PLACE = Struct(">qi11xi")  # Base offset, length and last offset delta, as in the header of a batch.


class BatchPlace(NamedTuple):
    """The place of a batch in its segment."""

    position: int
    size: int
    base_offset: int
    last_offset: int


def walk_places(file: Readable, position: int, end_position: int) -> Iterator[BatchPlace]:
    """The whole batches between two positions.

    Stops before a batch that is cut short. Raises `MalformedMessage` where no batch can begin, and OSError.
    """
    chunk: BytesLike = b""
    chunk_position = position
    unpack = _PLACE.unpack_from
    while position + HEADER_SIZE <= end_position:
        inside = position - chunk_position
        if inside + HEADER_SIZE > len(chunk):
            chunk = file.pread(min(CHUNK_SIZE, end_position - position), position)
            chunk_position, inside = position, 0
            if len(chunk) < HEADER_SIZE:
                return
        base_offset, length, last_offset_delta = unpack(chunk, inside)
        if length < LENGTH_MIN or last_offset_delta < 0 or base_offset < 0:
            raise MalformedMessage(f"no batch at position {position}: length {length}, offset {base_offset}")
        size = length + LOG_OVERHEAD
        if position + size > end_position:
            return
        yield BatchPlace(position, size, base_offset, base_offset + last_offset_delta)
        position += size


def find_batch(
    file: Readable, position: int, end_position: int, offset: int, *, is_whole: bool = False
) -> BatchPlace | None:
    """The first batch at or after a position that ends at or past an offset; None where all end before it. With
    `is_whole` the last batch must end at `end_position`: a length that goes past it would hide all batches behind it,
    and raises `MalformedMessage`. Raises OSError."""
    for place in walk_places(file, position, end_position):
        if place.last_offset >= offset:
            return place
        position = place.position + place.size
    if is_whole and position < end_position:
        raise MalformedMessage(f"no whole batch at position {position} of {end_position}")
    return None


def walk_headers(file: Readable, position: int, end_position: int) -> Iterator[tuple[int, BatchHeader]]:
    """The (position, header) of the whole batches between two positions; raises as `walk_places` does."""
    chunk: BytesLike = b""
    chunk_position = position
    while position + HEADER_SIZE <= end_position:
        inside = position - chunk_position
        if inside + HEADER_SIZE > len(chunk):
            chunk = file.pread(min(CHUNK_SIZE, end_position - position), position)
            chunk_position, inside = position, 0
            if len(chunk) < HEADER_SIZE:
                return
        header = parse_header(chunk, inside)
        if position + header.size > end_position:
            return
        yield position, header
        position += header.size


def damage_in(records: BytesLike) -> str | None:
    """The damage of the first bad batch in some stored bytes; None where all are good. A batch that is cut short at the
    end is not bad: the read ended in it."""
    try:
        for position, header in iterate_batches(records):
            if not crc_is_valid(records, position, header):
                return f"the checksum of the batch at offset {header.base_offset} is wrong"
    except MalformedMessage as malformed:
        return str(malformed)
    return None
