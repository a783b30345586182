"""The sparse offset index of a segment: (last offset of a batch, position where that batch starts)."""

from __future__ import annotations

from struct import Struct

from moldau.storage.files.port import FileSystem
from moldau.storage.segment.sparse_index import SparseIndex

ENTRY = Struct(">ii")  # Offset relative to the base offset of the segment; position in the .log file.
_OFFSET, _POSITION = 0, 1


class OffsetIndex:
    """Positions in a .log file by offset, for about every `index.interval.bytes`."""

    __slots__ = ("_base_offset", "entries")

    def __init__(self, fs: FileSystem, path: str, base_offset: int, *, read_only: bool = False) -> None:
        self._base_offset = base_offset
        self.entries = SparseIndex(fs, path, ENTRY, read_only=read_only)

    def append(self, last_offset: int, position: int) -> None:
        self.entries.append((last_offset - self._base_offset, position))

    def position_at_or_before(self, offset: int, *, waits: bool = True) -> int:
        """The position of a batch at or before an offset, from which to walk the headers; 0 where no entry is.

        Without `waits` it may raise `NotCached`.
        """
        entry = self.entries.lookup(_OFFSET, offset - self._base_offset, waits=waits)
        return entry[_POSITION] if entry else 0

    def offset_after(self, position: int, *, waits: bool = True) -> int | None:
        """The last offset of a batch that begins past a position, None where no entry does.

        Without `waits` it may raise `NotCached`.
        """
        entry = self.entries.entry_after(_POSITION, position, waits=waits)
        return None if entry is None else entry[_OFFSET] + self._base_offset

    def entry_past(self, position: int) -> int | None:
        """The first position in the index that is greater than a position; None where there is none. Raises OSError."""
        entry = self.entries.entry_after(_POSITION, position)
        return None if entry is None else entry[_POSITION]

    def last_position(self) -> int:
        """The position of the last entry, 0 in an empty index. Raises OSError."""
        last = self.entries.last()
        return last[_POSITION] if last else 0

    def truncate_to(self, offset: int) -> None:
        """Remove the entries of batches that end at or past an offset. Raises OSError."""
        self.entries.truncate(_OFFSET, offset - self._base_offset)

    def is_sound(self) -> bool:
        """Whether the file can be trusted (see `SparseIndex.is_sound`)."""
        # The first batch of a segment never gets an entry, so neither column is ever zero in Kafka's files.
        return self.entries.is_sound((0, 1))
