"""Remote segments in memory, about a hundred bytes each: packed rows, found by number or by segment id.

A broker may know a million remote segments. An object for each would take some 600 bytes; here a segment is a row of
`ROW` in one bytearray. What does not fit into a row (further leader epochs, custom metadata) is in a dictionary by
row number. Ids are found by open addressing in an array of row numbers: segment ids are random, so that four
of their bytes are the hash.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from struct import Struct
from typing import Final

from moldau.storage.checkpoints.leader_epochs import EpochStart
from moldau.storage.tiered.metadata.remote_segment import RemoteSegment, SegmentState

ROW: Final = Struct(">16sqqqqiiqiB?")
"""The fields of a row: segment id, start offset, last offset, largest timestamp, time of the event, broker, first
leader epoch, start offset of that epoch, size, state, whether there is a transaction index."""
ID_SIZE: Final = 16
STATE_POSITION: Final = ROW.size - 2
_OFFSETS: Final = Struct(">16xqq")
_TIMESTAMP: Final = Struct(">q")
_TIMESTAMP_POSITION: Final = 32
_SIZE: Final = Struct(">i")
_SIZE_POSITION: Final = ROW.size - 6
FREE: Final = -1
ID_COUNT_MIN: Final = 8

Extra = tuple[tuple[EpochStart, ...], bytes | None]
"""The fields of a segment that do not fit into its row: the leader epochs after the first one, and the
custom metadata."""


class SegmentTable:
    """A table of remote segments in packed rows. Rows are numbered from 0; the number of a removed row
    is used again."""

    __slots__ = ("_extras", "_free", "_ids", "_rows", "count")

    def __init__(self) -> None:
        self._rows = bytearray()
        self._extras: dict[int, Extra] = {}
        self._free: list[int] = []
        self._ids = array("i", [FREE]) * ID_COUNT_MIN
        self.count = 0

    def find(self, segment_id: bytes) -> int | None:
        """The row of a segment; None if the segment is not in the table."""
        row = self._ids[self._place(segment_id)]
        return None if row == FREE else row

    def add(self, segment: RemoteSegment) -> int:
        """Add a segment that is not in the table. Returns its row."""
        if 2 * (self.count + 1) > len(self._ids):
            self._rehash(2 * len(self._ids))
        if self._free:
            row = self._free.pop()
        else:
            row = len(self._rows) // ROW.size
            self._rows += bytes(ROW.size)
        self._ids[self._place(segment.segment_id)] = row
        self.count += 1
        self.put(row, segment)
        return row

    def put(self, row: int, segment: RemoteSegment) -> None:
        """Replace the content of a row."""
        first = segment.epochs[0]
        ROW.pack_into(
            self._rows,
            row * ROW.size,
            segment.segment_id,
            segment.start_offset,
            segment.last_offset,
            segment.max_timestamp_ms,
            segment.event_timestamp_ms,
            segment.broker_id,
            first.epoch,
            first.start_offset,
            segment.size,
            segment.state,
            segment.has_transaction_index,
        )
        if len(segment.epochs) > 1 or segment.custom_metadata is not None:
            self._extras[row] = (segment.epochs[1:], segment.custom_metadata)
        else:
            self._extras.pop(row, None)

    def get(self, row: int) -> RemoteSegment:
        """Return the segment of a row as an object."""
        (segment_id, start, last, latest, event, broker, epoch, epoch_start, size, state, has_transactions) = (
            ROW.unpack_from(self._rows, row * ROW.size)
        )
        later, custom = self._extras.get(row, ((), None))
        epochs = (EpochStart(epoch, epoch_start), *later)
        return RemoteSegment(
            segment_id, start, last, broker, latest, event, epochs, size, SegmentState(state), custom, has_transactions
        )

    def remove(self, row: int) -> None:
        hole = self._place(self._id(row))
        mask = len(self._ids) - 1
        self._ids[hole] = FREE
        # The rows after the hole, up to the next free place, may have been placed there because the hole was taken.
        # They are placed again.
        place = (hole + 1) & mask
        while (behind := self._ids[place]) != FREE:
            self._ids[place] = FREE
            self._ids[self._place(self._id(behind))] = behind
            place = (place + 1) & mask
        self._extras.pop(row, None)
        self._free.append(row)
        self.count -= 1

    def rows(self) -> Iterator[int]:
        """The numbers of the rows in use. The table must not change during the iteration."""
        return (row for row in self._ids if row != FREE)

    def offsets(self, row: int) -> tuple[int, int]:
        """The first and the last offset of the segment of a row (both inclusive)."""
        start, last = _OFFSETS.unpack_from(self._rows, row * ROW.size)
        return start, last

    def size(self, row: int) -> int:
        """The size of the .log object of the segment of a row, in bytes."""
        size: int = _SIZE.unpack_from(self._rows, row * ROW.size + _SIZE_POSITION)[0]
        return size

    def latest_timestamp(self, row: int) -> int:
        """The largest timestamp (ms) of the segment of a row."""
        timestamp: int = _TIMESTAMP.unpack_from(self._rows, row * ROW.size + _TIMESTAMP_POSITION)[0]
        return timestamp

    def custom_metadata(self, row: int) -> bytes | None:
        return self._extras.get(row, ((), None))[1]

    def epoch_count(self, row: int) -> int:
        """The number of leader epochs of the segment of a row."""
        return 1 + len(self._extras.get(row, ((), None))[0])

    def start_key(self, row: int) -> tuple[int, bytes]:
        """The key by which rows are sorted: the first offset of the segment, then its id."""
        return self.offsets(row)[0], self._id(row)

    def state(self, row: int) -> SegmentState:
        return SegmentState(self._rows[row * ROW.size + STATE_POSITION])

    def has_transaction_index(self, row: int) -> bool:
        return self._rows[row * ROW.size + STATE_POSITION + 1] != 0

    def last_offset_in(self, row: int, epoch: int) -> int:
        """The last offset (inclusive) of a leader epoch in the segment of a row. The segment must have this epoch."""
        for later in self._extras.get(row, ((), None))[0]:
            if later.epoch > epoch:
                return later.start_offset - 1
        return self.offsets(row)[1]

    def memory_size(self) -> int:
        """The memory in bytes, without the values of the dictionary."""
        return (
            self._rows.__sizeof__()
            + self._ids.__sizeof__()
            + self._extras.__sizeof__()
            + self._free.__sizeof__()
            + object.__sizeof__(self)
        )

    def _id(self, row: int) -> bytes:
        return bytes(self._rows[row * ROW.size : row * ROW.size + ID_SIZE])

    def _place(self, segment_id: bytes) -> int:
        """The index in `_ids` at which the row of a segment id is stored, or the free index for it."""
        mask = len(self._ids) - 1
        place = int.from_bytes(segment_id[8:12], "big") & mask
        while (row := self._ids[place]) != FREE and self._id(row) != segment_id:
            place = (place + 1) & mask
        return place

    def _rehash(self, length: int) -> None:
        rows = list(self.rows())
        self._ids = array("i", [FREE]) * length
        for row in rows:
            self._ids[self._place(self._id(row))] = row
