"""Scanning the batches of a .log file: only their headers, without the records, or whole batches with
their checksums."""

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
    MAGIC,
    MAGIC_POSITION,
    OLD_MESSAGE_SIZE_MIN,
    BatchHeader,
    crc_is_valid,
    may_be_old_message,
    parse_header,
)
from moldau.storage.files.port import File, Readable

CHUNK_SIZE = 8192
"""The bytes that a scan of headers reads at once: about the distance between two index entries, so that a lookup costs
one or two reads."""
PIECE_SIZE = 1 << 20
"""The bytes that are read at once if a range of whole batches is read from one end to the other."""
_MAGIC_BYTE = bytes([MAGIC])
_PLACE = Struct(">qi4xB6xi")  # Base offset, length, magic and last offset delta, as in the header of a batch.
_OLD_LENGTH_MIN = OLD_MESSAGE_SIZE_MIN - LOG_OVERHEAD
_PADDING = bytes(HEADER_SIZE)
"""Zeros that are appended to the last bytes of a file, because a message of format 0 or 1 may be shorter than a batch
header."""


class BatchPlace(NamedTuple):
    """The position (bytes) and the size of a batch in a .log file, and its offsets. The `base_offset` of a message of
    format 0 or 1 is its last offset."""

    position: int
    size: int
    base_offset: int
    last_offset: int


def iterate_batch_places(file: Readable, position: int, end_position: int) -> Iterator[BatchPlace]:
    """Yield the position, size and offsets of each whole batch between two positions.

    Stops before a batch that is cut short. Raises `MalformedMessage` if no batch can begin at the position after a
    batch, and OSError.
    """
    chunk: BytesLike = b""
    chunk_position = position
    unpack = _PLACE.unpack_from
    while position + OLD_MESSAGE_SIZE_MIN <= end_position:
        inside = position - chunk_position
        if inside + HEADER_SIZE > len(chunk):
            chunk = _chunk_at(file, position, end_position)
            chunk_position, inside = position, 0
            if not chunk:
                return
        base_offset, length, magic, last_offset_delta = unpack(chunk, inside)
        if magic < MAGIC:
            last_offset_delta = 0
        if length < (_OLD_LENGTH_MIN if magic < MAGIC else LENGTH_MIN) or last_offset_delta < 0 or base_offset < 0:
            raise MalformedMessage(f"no batch at position {position}: length {length}, offset {base_offset}")
        size = length + LOG_OVERHEAD
        if position + size > end_position:
            return
        yield BatchPlace(position, size, base_offset, base_offset + last_offset_delta)
        position += size


def find_batch(
    file: Readable,
    position: int,
    end_position: int,
    offset: int,
    *,
    is_whole: bool = False,
    named_offset: int | None = None,
) -> BatchPlace | None:
    """Return the first batch from `position` on whose last offset is at or past `offset`; None if all batches end
    before `offset`.

    With `is_whole` the last batch must end at `end_position`: a wrong length that goes past it would hide all batches
    behind it. With `named_offset` the first batch must contain that offset. Raises `MalformedMessage` if such a
    condition does not hold, and OSError.
    """
    for place in iterate_batch_places(file, position, end_position):
        if named_offset is not None:
            if not place.base_offset <= named_offset <= place.last_offset:
                raise MalformedMessage(f"no batch with offset {named_offset} at position {position}")
            named_offset = None
        if place.last_offset >= offset:
            return place
        position = place.position + place.size
    if is_whole and position < end_position:
        raise MalformedMessage(f"no whole batch at position {position} of {end_position}")
    return None


def iterate_batch_headers(file: Readable, position: int, end_position: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the position and the header of each whole batch between two positions. Raises as `iterate_batch_places`
    does.
    """
    chunk: BytesLike = b""
    chunk_position = position
    while position + OLD_MESSAGE_SIZE_MIN <= end_position:
        inside = position - chunk_position
        if inside + HEADER_SIZE > len(chunk):
            chunk = _chunk_at(file, position, end_position)
            chunk_position, inside = position, 0
            if not chunk:
                return
        header = parse_header(chunk, inside, True)
        if position + header.size > end_position:
            return
        yield position, header
        position += header.size


def _chunk_at(file: Readable, position: int, end_position: int) -> BytesLike:
    """Read the bytes from a position on: at least the header of a batch, or a message of an older format. A message
    that is shorter than the header of a batch is padded. Returns empty bytes if neither is there.
    """
    chunk = file.pread(min(CHUNK_SIZE, end_position - position), position)
    if len(chunk) < HEADER_SIZE:
        chunk = bytes(chunk) + _PADDING[len(chunk) :] if may_be_old_message(chunk, 0) else b""
    return chunk


def damage_in(records: BytesLike) -> str | None:
    """Return what is wrong with the first bad batch in stored bytes; None if all batches are good. A batch that is cut
    short at the end is not bad: the read ended in it."""
    try:
        for position, header in iterate_batches(records):
            if not crc_is_valid(records, position, header):
                return f"the checksum of the batch at offset {header.base_offset} is wrong"
    except MalformedMessage as malformed:
        return str(malformed)
    return None


class DamagedBatch(Exception):
    """No whole batch with a valid checksum begins at a position of a .log file. The message has the reason."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"{reason} at position {position}")
        self.position = position


class FilePieces:
    """A range of a file that is read from one end to the other, `PIECE_SIZE` bytes at a time."""

    __slots__ = ("data", "end_position", "file", "position")

    def __init__(self, file: File, position: int, end_position: int) -> None:
        self.file = file
        self.position = position
        """The position in the file at which `data` begins."""
        self.end_position = end_position
        self.data = b""

    def load_range(self, position: int, size: int) -> int:
        """Make sure that `data` has `size` bytes of the file from `position` on, or all bytes up to the end of the
        range.

        Returns the index of `position` in `data`. Raises OSError.
        """
        inside = position - self.position
        if inside + size > len(self.data):
            size = min(max(size, PIECE_SIZE), self.end_position - position)
            self.data, self.position, inside = self.file.pread(size, position), position, 0
        return inside


def verified_batch(pieces: FilePieces, position: int) -> tuple[BatchHeader, int]:
    """Check the batch at `position`. Returns its header, and the index in `pieces.data` at which the whole batch
    begins.

    Raises `DamagedBatch` if there is no whole batch or its checksum is wrong, and OSError.
    """
    inside = pieces.load_range(position, HEADER_SIZE)
    try:
        header = parse_header(pieces.data, inside, True)
    except MalformedMessage as error:
        raise DamagedBatch(position, str(error)) from None
    size = header.batch_length + LOG_OVERHEAD
    if position + size > pieces.end_position:
        raise DamagedBatch(position, f"{pieces.end_position - position} bytes of a batch of {size}")
    inside = pieces.load_range(position, size)
    if not crc_is_valid(pieces.data, inside, header):
        raise DamagedBatch(position, "checksum mismatch")
    return header, inside


def whole_batch_after(file: File, position: int, end_position: int, offset_min: int) -> int | None:
    """Find the first whole batch with a valid checksum between two positions of a file that may be damaged. Returns its
    base offset, which is at least `offset_min`; None if there is no such batch. Raises OSError.

    No length in a damaged file can be trusted, so a batch may begin at any byte. It is found by its magic byte.
    """
    pieces = FilePieces(file, position, end_position)
    while position + HEADER_SIZE <= end_position:
        inside = pieces.load_range(position, HEADER_SIZE)
        found = pieces.data.find(_MAGIC_BYTE, inside + MAGIC_POSITION)
        if found < 0 or found - MAGIC_POSITION + HEADER_SIZE > len(pieces.data):
            # The rest of the piece is too short for a header: the next piece begins with it.
            position = max(position + 1, pieces.position + len(pieces.data) - HEADER_SIZE + 1)
            continue
        position = pieces.position + found - MAGIC_POSITION
        base_offset, length, _, last_offset_delta = _PLACE.unpack_from(pieces.data, found - MAGIC_POSITION)
        is_possible = base_offset >= offset_min and last_offset_delta >= 0 and length >= LENGTH_MIN
        if is_possible and position + LOG_OVERHEAD + length <= end_position:
            try:
                return verified_batch(pieces, position)[0].base_offset
            except DamagedBatch:
                pass
        position += 1
    return None
