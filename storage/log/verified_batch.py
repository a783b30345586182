"""Reads a batch from a .log file and verifies its checksum, for recovery and for the search for damage."""

from __future__ import annotations

from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_batch import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, crc_is_valid, parse_header
from moldau.storage.files.port import File

CHUNK_SIZE = 1 << 20


class DamagedBatch(Exception):
    """The .log file has no whole batch with a correct checksum at a position; the message says what it has."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"{reason} at position {position}")
        self.position = position


class Pieces:
    """A range of a file that is read from one end to the other, `CHUNK_SIZE` bytes at a time."""

    __slots__ = ("data", "end_position", "file", "position")

    def __init__(self, file: File, position: int, end_position: int) -> None:
        self.file = file
        self.position = position
        """The position in the file of the piece in `data`."""
        self.end_position = end_position
        self.data = b""

    def reach(self, position: int, size: int) -> int:
        """Load `size` bytes from a position of the file into `data`, or all up to the end of the range.

        Returns the index of the position in `data`. Raises OSError.
        """
        inside = position - self.position
        if inside + size > len(self.data):
            size = min(max(size, CHUNK_SIZE), self.end_position - position)
            self.data, self.position, inside = self.file.pread(size, position), position, 0
        return inside


def verified_batch(pieces: Pieces, position: int) -> tuple[BatchHeader, int]:
    """The header of the batch at a position, and the index in `pieces.data` from which on the whole of it lies.

    Raises `DamagedBatch` where there is no whole batch or its checksum does not match, and OSError.
    """
    inside = pieces.reach(position, HEADER_SIZE)
    try:
        header = parse_header(pieces.data, inside)
    except MalformedMessage as error:
        raise DamagedBatch(position, str(error)) from None
    size = header.batch_length + LOG_OVERHEAD
    if position + size > pieces.end_position:
        raise DamagedBatch(position, f"{pieces.end_position - position} bytes of a batch of {size}")
    inside = pieces.reach(position, size)
    if not crc_is_valid(pieces.data, inside, header):
        raise DamagedBatch(position, "checksum mismatch")
    return header, inside
