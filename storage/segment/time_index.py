"""The sparse time index of a segment: (largest timestamp so far, last offset of the batch that holds it)."""

from __future__ import annotations

from struct import Struct

from moldau.storage.files.port import FileSystem
from moldau.storage.segment.sparse_index import SparseIndex

ENTRY = Struct(">qi")  # Timestamp in ms; offset relative to the base offset of the segment.
_TIMESTAMP, _OFFSET = 0, 1

NO_TIMESTAMP = -1


class TimeIndex:
    """The largest timestamp (ms) so far, with the offset of its batch, for about every `index.interval.bytes`."""

    __slots__ = ("_base_offset", "entries")

    def __init__(self, fs: FileSystem, path: str, base_offset: int, *, read_only: bool = False) -> None:
        self._base_offset = base_offset
        self.entries = SparseIndex(fs, path, ENTRY, read_only=read_only)

    def append_if_later(self, timestamp: int, last_offset: int) -> None:
        """Add an entry unless the last one has as large a timestamp: timestamps in the index strictly increase."""
        last = self.entries.last()
        if timestamp > (last[_TIMESTAMP] if last else NO_TIMESTAMP):
            self.entries.append((timestamp, last_offset - self._base_offset))

    def last(self) -> tuple[int, int]:
        """(timestamp, offset) of the last entry; (-1, base offset) of an empty index. Raises OSError."""
        entry = self.entries.last()
        return self._absolute(entry) if entry else (NO_TIMESTAMP, self._base_offset)

    def at_or_before(self, timestamp: int) -> tuple[int, int]:
        """The entry with the largest timestamp not above the target; (-1, base offset) where all are above."""
        entry = self.entries.lookup(_TIMESTAMP, timestamp)
        return self._absolute(entry) if entry else (NO_TIMESTAMP, self._base_offset)

    def truncate_to(self, offset: int) -> None:
        """Remove the entries of batches that end at or past an offset. Raises OSError."""
        self.entries.truncate(_OFFSET, offset - self._base_offset)

    def is_sound(self) -> bool:
        """Whether the file can be trusted (see `SparseIndex.is_sound`)."""
        return self.entries.is_sound((0, 0))

    def _absolute(self, entry: tuple[int, ...]) -> tuple[int, int]:
        return entry[_TIMESTAMP], entry[_OFFSET] + self._base_offset
