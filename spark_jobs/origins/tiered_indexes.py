"""The indexes of a remote segment, as the driver reads them: compared with the manifest, and kept in memory."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from struct import Struct
from typing import Final

from moldau.storage.tiered.port import CorruptObject

ENTRY: Final = Struct(">ii")
TIME_ENTRY: Final = Struct(">qi")


class RemoteOffsetIndex:
    """Offsets and positions of some batches. An entry has an offset of the batch that begins at its position."""

    def __init__(self, key: str, data: bytes, start_offset: int) -> None:
        """Parse an offset index. Raises `CorruptObject`."""
        entries = list(ENTRY.iter_unpack(whole_entries(key, data, ENTRY.size)))
        self._offsets = array("q", [start_offset + offset for offset, _ in entries])
        self._positions = array("q", [position for _, position in entries])

    def position_at_or_before(self, offset: int) -> int:
        """The indexed position of the last batch that begins at or before the batch with this offset."""
        slot = bisect_right(self._offsets, offset)
        return self._positions[slot - 1] if slot else 0

    def position_past(self, offset: int) -> int | None:
        """The position of a batch whose records are all at or past an offset; None where no index entry gives one."""
        # The entry may have the last offset of its batch: only the next one begins past the offset for certain.
        slot = bisect_left(self._offsets, offset) + 1
        return self._positions[slot] if slot < len(self._positions) else None

    def cuts(self, start_position: int, end_position: int, slice_size: int) -> list[int]:
        """The positions at which slices of at least `slice_size` bytes begin."""
        found = [start_position]
        while True:
            slot = bisect_left(self._positions, found[-1] + slice_size)
            if slot == len(self._positions) or self._positions[slot] >= end_position:
                return found
            found.append(self._positions[slot])


def indexed_offset(key: str, data: bytes, start_offset: int, timestamp_ms: int) -> int:
    """The offset, according to a time index, from which to search for the first record at or after a time. Raises
    `CorruptObject`.
    """
    offset = start_offset
    for timestamp, delta in TIME_ENTRY.iter_unpack(whole_entries(key, data, TIME_ENTRY.size)):
        if timestamp > timestamp_ms:
            break
        offset = start_offset + delta
    return offset


def whole_entries(key: str, data: bytes, entry_size: int) -> bytes:
    if len(data) % entry_size:
        raise CorruptObject(f"{key}: {len(data)} bytes are not whole entries")
    return data
