"""The remote segments of one leader epoch, and the choice of the segment that is read for an offset."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable

NO_OFFSET = -1


class EpochSegments:
    """The segments of one leader epoch, as rows of a `SegmentTable`. Readers get offsets from *referenced* rows only.
    *Unreferenced* rows are copies that are not finished, copies that a later one replaced, and segments under deletion.
    They are kept until their deletion is finished, so that no object is forgotten in the storage."""

    __slots__ = ("_latest", "_rows", "_starts", "_transactional", "highest_offset", "unreferenced")

    def __init__(self) -> None:
        self._starts = array("q")
        """The first offset that each of `_rows` has in this epoch, ascending."""
        self._rows = array("i")
        self._transactional = array("q")
        """The first offsets, in this epoch, of the rows whose segments have a transaction index."""
        self._latest = array("q")
        """For each slot of `_rows`, the largest timestamp of the rows up to it. It is computed for as many slots as
        lookups needed."""
        self.unreferenced: set[int] = set()
        self.highest_offset = NO_OFFSET
        """The highest offset (inclusive) of this epoch that was ever copied, since the last removal of the whole
        partition. Deletions of segments do not lower it."""

    @property
    def is_empty(self) -> bool:
        return not self._rows and not self.unreferenced

    @property
    def first_offset(self) -> int:
        """The first offset of the referenced rows in this epoch; `NO_OFFSET` if there is no such row."""
        return self._starts[0] if self._starts else NO_OFFSET

    def note_unreferenced(self, row: int) -> None:
        self.unreferenced.add(row)

    def reference(self, start_offset: int, row: int, last_offset: int, *, is_transactional: bool) -> list[int]:
        """Make a row referenced, from `start_offset` on. Returns the rows that it replaces, which become unreferenced.

        A row that ends at or past `highest_offset` replaces all rows that begin at or past `start_offset`. Another row
        replaces only a row that begins exactly at `start_offset`. DIVERGES: Apache Kafka forgets a longer row that
        begins at the same offset, so a deletion by leader epoch does not find its objects. Here the row is kept as
        unreferenced until its objects are deleted.
        """
        first = bisect_left(self._starts, start_offset)
        if last_offset >= self.highest_offset:
            end = len(self._starts)
            self.highest_offset = last_offset
        else:
            end = bisect_right(self._starts, start_offset)
        displaced = [each for each in self._rows[first:end] if each != row]
        if first < end:
            self._forget_transactional(start_offset, self._starts[end - 1])
        if is_transactional:
            self._transactional.insert(bisect_left(self._transactional, start_offset), start_offset)
        del self._latest[first:]
        self._starts[first:end] = array("q", [start_offset])
        self._rows[first:end] = array("i", [row])
        self.unreferenced.update(displaced)
        self.unreferenced.discard(row)
        return displaced

    def unreference(self, start_offset: int, row: int) -> bool:
        """Make a row unreferenced, and keep it for its deletion. Returns False if it was not referenced
        in this epoch."""
        slot = bisect_left(self._starts, start_offset)
        is_read = slot < len(self._starts) and self._starts[slot] == start_offset and self._rows[slot] == row
        if is_read:
            self._forget_transactional(start_offset, start_offset)
            del self._latest[slot:]
            del self._starts[slot]
            del self._rows[slot]
        self.unreferenced.add(row)
        return is_read

    def _forget_transactional(self, first_start: int, last_start: int) -> None:
        """Remove the offsets from `first_start` to `last_start` (both inclusive) from those of rows with a transaction
        index."""
        starts = self._transactional
        del starts[bisect_left(starts, first_start) : bisect_right(starts, last_start)]

    def drop_row(self, row: int) -> None:
        """Drop an unreferenced row whose deletion is finished."""
        self.unreferenced.discard(row)

    def forget_highest(self) -> None:
        """Forget the highest copied offset if the epoch has no row left."""
        if self.is_empty:
            self.highest_offset = NO_OFFSET

    def row_at_or_before(self, offset: int) -> int | None:
        """The row with the largest start offset that is not above `offset`; None if there is none."""
        slot = bisect_right(self._starts, offset) - 1
        return self._rows[slot] if slot >= 0 else None

    def has_transactional_from(self, offset: int) -> bool:
        """Whether a row with a transaction index begins at or past `offset`."""
        return bool(self._transactional) and self._transactional[-1] >= offset

    def first_from_time(
        self, timestamp: int, offset: int, timestamp_of: Callable[[int], int], last_offset_of: Callable[[int], int]
    ) -> int | None:
        """Return the first referenced row whose largest timestamp is at or after `timestamp` (ms). Return None if there
        is none.

        The search begins at the row that contains `offset`. `timestamp_of` returns the largest timestamp of a row,
        `last_offset_of` its last offset.
        """
        latest = self._latest
        for row in self._rows[len(latest) :]:
            own = timestamp_of(row)
            latest.append(max(own, latest[-1]) if latest else own)
        slot = bisect_right(self._starts, offset) - 1
        if slot >= 0 and last_offset_of(self._rows[slot]) < offset:
            slot += 1
        slot = max(0, slot, bisect_left(latest, timestamp))
        # Timestamps may not ascend: the maximum may be that of an earlier row.
        return next((row for row in self._rows[slot:] if timestamp_of(row) >= timestamp), None)

    def rows_outside(self, start_offset: int, end_offset: int) -> list[int]:
        """The referenced rows that may lie outside of [start_offset, end_offset): all of them if `highest_offset` is at
        or past `end_offset`, otherwise those that begin before `start_offset`.
        """
        if self.highest_offset >= end_offset:
            return list(self._rows)
        return list(self._rows[: bisect_left(self._starts, start_offset)])

    def referenced_rows(self, first_offset: int = 0) -> list[int]:
        """The referenced rows that may have an offset at or past `first_offset`, in the order of their offsets."""
        return list(self._rows[max(0, bisect_right(self._starts, first_offset) - 1) :])

    def memory_size(self) -> int:
        """The memory in bytes."""
        return (
            self._starts.__sizeof__()
            + self._rows.__sizeof__()
            + self._transactional.__sizeof__()
            + self._latest.__sizeof__()
            + self.unreferenced.__sizeof__()
            + object.__sizeof__(self)
        )
