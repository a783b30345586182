"""The two sparse indexes of a segment, by offset and by time: sorted files of fixed-size entries, with the newest
entries in memory.

    offset index    (last offset of a batch, position where that batch starts)
    time index      (largest timestamp so far, last offset of the batch that holds it)

Entries are tuples of integers, and no column ever decreases. A lookup is a binary search in the file, so the memory of
an index does not grow with its size. The newest entries, which readers at the end of the log need, are kept in memory.
Entries are written in groups of `PENDING_COUNT_MAX`. After a crash an index may lack its newest entries. That costs
nothing, because the entries past the recovery point are made again from the batches in any case.

Apache Kafka maps index files at their full size, so files that it wrote may end in zeros. An entry of zeros is never
valid, and ends the file.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter
from struct import Struct

from moldau.protocol.primitives import BytesLike
from moldau.storage.files.open_files import OpenFile, open_for_holder
from moldau.storage.files.port import TRANSIENT_ERRNOS, File, FileSystem

# DIVERGES: Kafka maps its index files at their largest size and cuts them when it rolls. Here they grow as they are
# written: an idle partition takes no space, and a file is never truncated under a mapping.
PENDING_COUNT_MAX = 64
BLOCK_COUNT = 1024
"""The number of entries that a search reads at once; reading them costs as much as reading one."""

Entry = tuple[int, ...]


class SparseIndex:
    """A file of sorted entries of a fixed size. `column` in lookups is the index of a field in an entry, 0 or 1."""

    __slots__ = (
        "_count",
        "_entry",
        "_fs",
        "_near",
        "_open_file",
        "_path",
        "_read_only",
        "_recent",
        "_written_count",
        "is_unsynced",
    )

    def __init__(self, fs: FileSystem, path: str, entry: Struct, *, read_only: bool = False) -> None:
        self._fs = fs
        self._path = path
        self._entry = entry
        self._read_only = read_only
        self._open_file: OpenFile | None = None
        self._count = -1  # The count is not known until the file is read.
        self._near = 0  # The slot of the last lookup: a sequential reader soon needs the next one.
        self.is_unsynced = False
        """Whether the file was changed since the last flush collected it for a sync."""
        self._written_count = 0
        self._recent: list[Entry] = []  # The last entries; those from `_written_count` on are not in the file.

    @property
    def count(self) -> int:
        if self._count < 0:
            self._load()
        return self._count

    @property
    def pending_count(self) -> int:
        """The number of entries that are not in the file yet."""
        return self._count - self._written_count if self._count >= 0 else 0

    def create(self) -> None:
        """Make the index file, or empty it if it exists. Raises OSError."""
        opened = self._open_file = open_for_holder(self._fs, self, self._path, create=True)
        opened.file.truncate(0)
        self._count = self._written_count = 0
        self._recent.clear()

    def last_entry(self) -> Entry | None:
        """The last entry; None in an empty index. Raises OSError."""
        if self._recent:
            return self._recent[-1]
        return self.entry_at(self._count - 1) if self.count else None

    def load_last_entry(self) -> None:
        """Keep the last entry in memory, so that an append need not open the file to compare with it."""
        if not self._recent and self.count:
            self._recent.append(self.entry_at(self._count - 1))

    def entry_at(self, slot: int) -> Entry:
        """The entry at index `slot`, which must be below `count`. Raises OSError."""
        assert 0 <= slot < self.count
        recent_slot = slot - (self._count - len(self._recent))
        if recent_slot >= 0:
            return self._recent[recent_slot]
        return self._read(slot, 1)[0]

    def append(self, entry: Entry) -> None:
        """Add an entry, which must not be below the last one in any column. Raises OSError, but not for a full disk."""
        if self._count < 0:
            self._load()
        self._recent.append(entry)
        self._count += 1
        if self._count - self._written_count >= PENDING_COUNT_MAX:
            self.write_pending_if_possible()

    def last_at_or_below(self, column: int, target: int, *, waits: bool = True) -> Entry | None:
        """The last entry whose `column` is not above `target`; None if all are above. Raises OSError.

        Without `waits` it raises `NotCached` if it would have to wait for the disk.
        """
        if self._count < 0:
            self._load(waits=waits)
        # Readers at the tail find their entry in memory, without a read of the file.
        recent = self._recent
        if recent and recent[0][column] <= target:
            return recent[bisect_right(recent, target, key=itemgetter(column)) - 1]
        return self._search(column, target, waits=waits)[1]

    def entry_after(self, column: int, target: int, *, waits: bool = True) -> Entry | None:
        """The first entry whose `column` is above `target`; None if there is none. Raises OSError.

        Without `waits` it raises `NotCached` if it would have to wait for the disk.
        """
        if self._count < 0:
            self._load(waits=waits)
        recent = self._recent
        if not recent or recent[0][column] > target:
            slot, _, after = self._search(column, target, waits=waits)
            if after is not None:
                return after
        else:
            slot = self._count - len(recent) + bisect_right(recent, target, key=itemgetter(column))
        if slot >= self._count:
            return None
        recent_slot = slot - (self._count - len(recent))
        return recent[recent_slot] if recent_slot >= 0 else self._read(slot, 1, waits=waits)[0]

    def truncate(self, column: int, bound: int) -> None:
        """Remove the entries whose `column` is at or above `bound`. Raises OSError."""
        kept_count = self._upper_slot(column, bound - 1)
        if kept_count == self._count:
            return
        kept_recent = max(0, kept_count - (self._count - len(self._recent)))
        del self._recent[kept_recent:]
        self._count = kept_count
        if kept_count < self._written_count:
            self._written_count = kept_count
            self.is_unsynced = True
            self.file().truncate(kept_count * self._entry.size)

    def clear(self) -> None:
        """Remove all entries. Raises OSError."""
        if not self._fs.exists(self._path):
            self.create()
            return
        self._recent.clear()
        self._count = self._written_count = 0
        self.is_unsynced = True
        self.file().truncate(0)

    def write_pending(self) -> None:
        """Write the entries that are not in the file yet. If this raises OSError, they stay in memory."""
        pending_count = self.pending_count
        if not pending_count:
            return
        pack = self._entry.pack
        self._writable_file().append([b"".join([pack(*entry) for entry in self._recent[-pending_count:]])])
        self._written_count = self._count
        self.is_unsynced = True
        if len(self._recent) > 2 * PENDING_COUNT_MAX:
            del self._recent[:-PENDING_COUNT_MAX]

    def write_pending_if_possible(self) -> bool:
        """Write the entries that are not in the file yet. On a full disk or for a lack of file descriptors, they stay
        in memory and the result is False. Raises OSError for any other failure."""
        try:
            self.write_pending()
        except OSError as error:
            if error.errno not in TRANSIENT_ERRNOS:
                raise
            return False
        return True

    def open_file(self) -> OpenFile:
        """Return the index file, after opening it if it is not open. Raises OSError."""
        if self._open_file is None:
            self._open_file = open_for_holder(self._fs, self, self._path, read_only=self._read_only)
        return self._open_file

    @property
    def file_or_path(self) -> OpenFile | str:
        return self._open_file or self._path

    def close_if_unused(self) -> bool:
        """Close the file if `OpenFiles` has too many open files. Returns False if it stays open because pending entries
        could not be written."""
        self.release()
        return self._open_file is None

    def file(self) -> File:
        return (self._open_file or self.open_file()).file

    def release(self) -> None:
        """Write pending entries, close the file and drop the entries in memory. If the disk is full, the file stays
        open and the entries stay in memory."""
        if self.write_pending_if_possible():
            self._recent.clear()
            self.close()

    def close(self) -> None:
        if self._open_file is not None:
            self._open_file = None
            self._fs.open_files.note_closed(self)

    def is_sound(self, column_min: Entry) -> bool:
        """Whether the file can be trusted: it has whole entries without zeros behind them, and the first and the last
        entry are in order.

        No column of the first entry may be below `column_min`. Raises OSError.
        """
        try:
            size = self.file().size()
        except FileNotFoundError:
            return False
        if size % self._entry.size or self.count * self._entry.size != size:
            return False
        if not self._count:
            return True
        first, last = self.entry_at(0), self.entry_at(self._count - 1)
        return all(bound <= a <= b for bound, a, b in zip(column_min, first, last, strict=True))

    def _writable_file(self) -> File:
        file = self.file()
        # Zeros that Apache Kafka preallocated, or half an entry.
        if file.size() != self._written_count * self._entry.size:
            file.truncate(self._written_count * self._entry.size)
        return file

    def _load(self, *, waits: bool = True) -> None:
        """Find the number of entries in the file. Zeros at its end are not entries; the search for them is binary.
        Raises OSError and `NotCached`."""
        count = self.file().size() // self._entry.size
        if count and not any(self._read(count - 1, 1, waits=waits)[0]):
            low, high = 0, count - 1
            while low < high:
                middle = (low + high) // 2
                if any(self._read(middle, 1, waits=waits)[0]):
                    low = middle + 1
                else:
                    high = middle
            count = low
        self._count = self._written_count = count

    def _read(self, slot: int, count: int, *, waits: bool = True) -> list[Entry]:
        return list(self._entry.iter_unpack(self._bytes(slot, count, waits=waits)))

    def _bytes(self, slot: int, count: int, *, waits: bool) -> BytesLike:
        size = self._entry.size
        data = (self._open_file or self.open_file()).readable(waits=waits).pread(count * size, slot * size)
        assert len(data) == count * size, f"{self._path} became shorter"
        return data

    def _upper_slot(self, column: int, target: int) -> int:
        """The number of entries whose `column` is not above `target`."""
        in_file_count = self.count - len(self._recent)
        if self._recent and self._recent[0][column] <= target:
            return in_file_count + bisect_right(self._recent, target, key=itemgetter(column))
        return self._search(column, target, waits=True)[0]

    def _search(self, column: int, target: int, *, waits: bool) -> tuple[int, Entry | None, Entry | None]:
        """Search the entries that are in the file and not in memory.

        Returns the number of entries whose `column` is not above `target`, the last of these entries, and the first
        entry above `target`, if the search has read it.
        """
        size, unpack = self._entry.size, self._entry.unpack_from
        low, high = 0, self._count - len(self._recent)
        before: Entry | None = None
        after: Entry | None = None
        start = self._near
        while low < high:
            # One read is enough if the remaining entries fit into a block. Otherwise the first probe is where the
            # last lookup ended, and each further one halves the range.
            if high - low <= BLOCK_COUNT:
                start = low
            elif not low <= start < high:
                start = (low + high) // 2
            count = min(BLOCK_COUNT, high - start)
            block = self._bytes(start, count, waits=waits)
            inside = _upper_slot_in(block, count, self._entry, column, target)
            if inside:
                before = unpack(block, (inside - 1) * size)
            if inside == count:
                low = start + count
            elif inside == 0:
                high = start
            else:
                low = high = start + inside
            if inside < count:
                after = unpack(block, inside * size)
            start = -1
        self._near = max(0, low - 1)
        return low, before, after


def _upper_slot_in(block: BytesLike, count: int, entry: Struct, column: int, target: int) -> int:
    """Return the number of entries of a block whose `column` is not above `target`. `bisect_right` is not used, because
    it would call its key function for each step."""
    unpack, size = entry.unpack_from, entry.size
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if unpack(block, middle * size)[column] <= target:
            low = middle + 1
        else:
            high = middle
    return low


OFFSET_ENTRY = Struct(">ii")  # Offset relative to the base offset of the segment; position in the .log file.
_OFFSET, _POSITION = 0, 1


class OffsetIndex:
    """The offset index of a segment: the position of a batch in the .log file by its last offset, for about every
    `index.interval.bytes`."""

    __slots__ = ("_base_offset", "entries")

    def __init__(self, fs: FileSystem, path: str, base_offset: int, *, read_only: bool = False) -> None:
        self._base_offset = base_offset
        self.entries = SparseIndex(fs, path, OFFSET_ENTRY, read_only=read_only)

    def append(self, last_offset: int, position: int) -> None:
        self.entries.append((last_offset - self._base_offset, position))

    def entry_at_or_before(self, offset: int, *, waits: bool = True) -> tuple[int, int]:
        """The last offset and the position of the last indexed batch that ends at or before `offset`; (-1, 0) if there
        is none. Without `waits` it may raise `NotCached`."""
        entry = self.entries.last_at_or_below(_OFFSET, offset - self._base_offset, waits=waits)
        return (entry[_OFFSET] + self._base_offset, entry[_POSITION]) if entry else (-1, 0)

    def position_at_or_before(self, offset: int) -> int:
        """The position of a batch at or before `offset`, at which a scan of the headers can begin. It is 0 if no
        indexed batch ends at or before `offset`."""
        return self.entry_at_or_before(offset)[1]

    def offset_after(self, position: int, *, waits: bool) -> int | None:
        """The last offset of the first indexed batch that begins past `position`; None if there is none.

        Without `waits` it may raise `NotCached`.
        """
        entry = self.entries.entry_after(_POSITION, position, waits=waits)
        return None if entry is None else entry[_OFFSET] + self._base_offset

    def position_past(self, position: int) -> int | None:
        """The smallest position in the index that is greater than `position`; None if there is none. Raises OSError."""
        entry = self.entries.entry_after(_POSITION, position)
        return None if entry is None else entry[_POSITION]

    def last_entry(self) -> tuple[int, int]:
        """The last offset and the position of the last indexed batch; (-1, 0) if the index is empty. Raises OSError."""
        last = self.entries.last_entry()
        return (last[_OFFSET] + self._base_offset, last[_POSITION]) if last else (-1, 0)

    def last_position(self) -> int:
        """The position of the last indexed batch; 0 if the index is empty. Raises OSError."""
        last = self.entries.last_entry()
        return last[_POSITION] if last else 0

    def truncate_to(self, offset: int) -> None:
        """Remove the entries of batches that end at or past `offset`. Raises OSError."""
        self.entries.truncate(_OFFSET, offset - self._base_offset)

    def is_sound(self) -> bool:
        """Whether the file can be trusted (see `SparseIndex.is_sound`)."""
        # The first batch of a segment never gets an entry, so neither column is ever zero in Kafka's files.
        return self.entries.is_sound((0, 1))


TIME_ENTRY = Struct(">qi")  # Timestamp in ms; offset relative to the base offset of the segment.
_TIMESTAMP, _TIME_OFFSET = 0, 1

NO_TIMESTAMP = -1


class TimeIndex:
    """The time index of a segment: the largest timestamp (ms) so far, and the last offset of its batch, for about every
    `index.interval.bytes`."""

    __slots__ = ("_base_offset", "entries")

    def __init__(self, fs: FileSystem, path: str, base_offset: int, *, read_only: bool = False) -> None:
        self._base_offset = base_offset
        self.entries = SparseIndex(fs, path, TIME_ENTRY, read_only=read_only)

    def append_if_later(self, timestamp: int, last_offset: int) -> None:
        """Add an entry if `timestamp` is larger than that of the last entry: timestamps in the index
        strictly increase."""
        last = self.entries.last_entry()
        if timestamp > (last[_TIMESTAMP] if last else NO_TIMESTAMP):
            self.entries.append((timestamp, last_offset - self._base_offset))

    def last_entry(self) -> tuple[int, int]:
        """The timestamp and the offset of the last entry; (-1, base offset) if the index is empty. Raises OSError."""
        entry = self.entries.last_entry()
        return self._absolute(entry) if entry else (NO_TIMESTAMP, self._base_offset)

    def entry_at_or_before(self, timestamp: int) -> tuple[int, int]:
        """The timestamp and the offset of the last entry whose timestamp is not above `timestamp`; (-1, base offset) if
        there is none."""
        entry = self.entries.last_at_or_below(_TIMESTAMP, timestamp)
        return self._absolute(entry) if entry else (NO_TIMESTAMP, self._base_offset)

    def truncate_to(self, offset: int) -> None:
        """Remove the entries of batches that end at or past `offset`. Raises OSError."""
        self.entries.truncate(_TIME_OFFSET, offset - self._base_offset)

    def is_sound(self) -> bool:
        """Whether the file can be trusted (see `SparseIndex.is_sound`)."""
        return self.entries.is_sound((0, 0))

    def _absolute(self, entry: tuple[int, ...]) -> tuple[int, int]:
        return entry[_TIMESTAMP], entry[_TIME_OFFSET] + self._base_offset
