"""Opening a segment of a tiered storage in a task: its bytes are read ahead while the task decodes."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from typing import Final, NamedTuple

from moldau.protocol.primitives import BytesLike
from moldau.storage.tiered.port import ObjectNotFound
from moldau.tables.options.option_values import StoreAddress
from moldau.tables.origins.blocking_storage import BlockingStorage, storage_at
from moldau.tables.origins.port import SegmentFile, Slice
from moldau.tables.refusals import DataLost, SegmentReplaced

PIECE_SIZE: Final = 4 << 20
"""Bytes of one request."""
PIECES_AHEAD: Final = 4
"""Requests that are under way or unread: what a task holds of an object beside what it decodes."""


class TieredSegments(NamedTuple):
    """The `SegmentSource` of a tiered storage."""

    address: StoreAddress

    def open(self, wanted: Slice) -> SegmentFile:
        return TieredFile(storage_at(self.address), wanted)


class _Piece(NamedTuple):
    start: int
    end: int
    data: Future[BytesLike]


class TieredFile:
    """A slice of a `.log` object as a file that is read from its beginning to its end.

    Objects are never changed, so the object under the segment's key has the segment's bytes.
    """

    def __init__(self, storage: BlockingStorage, wanted: Slice) -> None:
        self._storage = storage
        self._wanted = wanted
        self._end = wanted.end_position
        self._pieces: deque[_Piece] = deque()

    def size(self) -> int:
        return self._wanted.segment.size

    def pread(self, size: int, position: int) -> bytes:
        """Up to `size` bytes, fewer at the end of the slice. Raises `DataLost`, `SegmentReplaced` where the object is
        shorter than its manifest said, and `RemoteStorageError`.
        """
        end = min(position + size, self._end)
        if position >= end:
            return b""
        self._ask(position, end)
        parts = []
        for piece in self._pieces:
            if piece.start >= end:
                break
            data = memoryview(self._received(piece))
            parts.append(data[max(0, position - piece.start) : end - piece.start])
        return b"".join(parts)

    def close(self) -> None:
        for piece in self._pieces:
            piece.data.cancel()
        self._pieces.clear()

    def _ask(self, position: int, end: int) -> None:
        """Drop the pieces before a position, and start to read those after it."""
        while self._pieces and self._pieces[0].end <= position:
            self._pieces.popleft()
        if self._pieces and not self._pieces[0].start <= position:
            self.close()
        at = self._pieces[-1].end if self._pieces else position
        limit = min(self._end, max(end, position + PIECES_AHEAD * PIECE_SIZE))
        while at < limit:
            following = min(at + PIECE_SIZE, self._end)
            request = self._storage.start_get(self._wanted.segment.name, at, following - at)
            self._pieces.append(_Piece(at, following, request))
            at = following

    def _received(self, piece: _Piece) -> BytesLike:
        try:
            data = piece.data.result()
        except ObjectNotFound:
            raise DataLost(f"{self._wanted}: {self._wanted.path} was deleted after the read was planned") from None
        if len(data) != piece.end - piece.start:
            raise SegmentReplaced(f"{self._wanted}: {self._wanted.path} has fewer bytes than its manifest says")
        return data
