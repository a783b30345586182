"""The bytes that a TLS stream has not encrypted yet, taken in pieces of a limited size.

A slice of a file holds no memory before it is taken: then one piece of it is read, if the page cache has it.
"""

from __future__ import annotations

from collections import deque
from typing import Final, cast

from moldau.protocol.primitives import BytesLike, Chunk
from moldau.storage.files.file_slice import FileSlice

PIECE_SIZE_MAX: Final = 1 << 16
"""The most bytes that are encrypted at once. OpenSSL's own buffer grows to this size and never shrinks."""


class UnsentBytes:
    """A queue of bytes and of slices of files; false while it is empty."""

    __slots__ = ("_chunks", "held_size")

    def __init__(self) -> None:
        self._chunks: deque[memoryview | FileSlice] = deque()
        """None of them is empty."""
        self.held_size = 0
        """The bytes of it that are in memory."""

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def put(self, chunk: Chunk) -> None:
        """Add bytes, or a slice of a file, at the end."""
        size = len(chunk)
        if not size:
            return
        if isinstance(chunk, FileSlice):
            self._chunks.append(chunk)
        else:
            self._chunks.append(memoryview(cast("BytesLike", chunk)))
            self.held_size += size

    def take(self) -> BytesLike | FileSlice:
        """Take the next piece. Raises OSError.

        Where the disk would have to be read, nothing is taken, and the slice that has to be warmed before is returned.
        """
        chunks = self._chunks
        first = chunks[0]
        size = len(first)
        wanted = min(size, PIECE_SIZE_MAX)
        if isinstance(first, FileSlice):
            place = first.position
            found = first.file.pread_cached(wanted, place)
            if found is None:
                return first
            if len(found) < wanted:
                raise OSError("the file has become shorter than what was promised of it")
            if size > wanted:
                chunks[0] = FileSlice(first.open_file, place + wanted, size - wanted)
            else:
                chunks.popleft()
            return found
        self.held_size -= wanted
        if size > wanted:
            chunks[0] = first[wanted:]
            return first[:wanted]
        return chunks.popleft()

    def clear(self) -> None:
        """Drop all bytes."""
        self._chunks.clear()
        self.held_size = 0
