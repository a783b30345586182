"""A sorted file of fixed-size entries whose newest ones wait in memory.

Entries are tuples of integers, each column never decreasing. Lookups read the file by binary search, so an index costs
no memory in proportion to its size; the newest entries, which the readers at the tail ask for, are kept. A few entries
are written at a time: an index behind its log costs a longer scan after a crash and nothing else, because everything
past the recovery point is rebuilt.

Files of Apache Kafka may end in zeros (it maps them at their full size): an entry of zeros is never a valid one and
ends the file for us.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from operator import itemgetter
from struct import Struct

from protocol.primitives import BytesLike
from storage.files.disk_errors import PASSING
from storage.files.open_file import OpenFile
from storage.files.open_files import open_kept
from storage.files.port import File, FileSystem

# DIVERGES: Kafka maps its index files at their largest size and cuts them when it rolls; ours grow as they are written,
# so that an idle partition takes no room and a truncated file can never be under a mapping.
PENDING_COUNT_MAX = 64
BLOCK_COUNT = 1024
"""Entries read at once in a search: a call for one costs as much."""

Entry = tuple[int, ...]


class SparseIndex:
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
        self._count = -1  # not looked at yet
        self._near = 0  # the slot that was found last: a reader comes back for one a little further on
        self.is_unsynced = False
        """The file was changed since the owner last synced it."""
        self._written_count = 0
        self._recent: list[Entry] = []  # the last entries; those from `_written_count` on are not in the file

    @property
    def count(self) -> int:
        if self._count < 0:
            self._load()
        return self._count

    @property
    def pending_count(self) -> int:
        """Entries that are not in the file yet."""
        return self._count - self._written_count if self._count >= 0 else 0

    def create(self) -> None:
        """Make the file, empty."""
        opened = self._open_file = open_kept(self._fs, self, self._path, create=True)
        opened.file.truncate(0)
        self._count = self._written_count = 0
        self._recent.clear()

    def last(self) -> Entry | None:
        if self._recent:
            return self._recent[-1]
        return self.entry_at(self._count - 1) if self.count else None

    def remember_last(self) -> None:
        """Have the last entry at hand, so that the next one can be compared with it without opening the file."""
        if not self._recent and self.count:
            self._recent.append(self.entry_at(self._count - 1))

    def entry_at(self, slot: int) -> Entry:
        assert 0 <= slot < self.count
        recent_slot = slot - (self._count - len(self._recent))
        if recent_slot >= 0:
            return self._recent[recent_slot]
        return self._read(slot, 1)[0]

    def all_entries(self) -> Iterator[Entry]:
        """From the first, read in blocks."""
        in_file_count = self.count - len(self._recent)
        for slot in range(0, in_file_count, BLOCK_COUNT):
            yield from self._read(slot, min(BLOCK_COUNT, in_file_count - slot))
        yield from self._recent

    def append(self, entry: Entry) -> None:
        if self._count < 0:
            self._load()
        self._recent.append(entry)
        self._count += 1
        if self._count - self._written_count >= PENDING_COUNT_MAX:
            self.write_pending_if_possible()

    def lookup(self, column: int, target: int, *, waits: bool = True) -> Entry | None:
        """The last entry whose column is not above the target, None where all are above.

        Without `waits` it raises `NotCached` where it would have to read from the disk.
        """
        if self._count < 0:
            self._load(waits=waits)
        recent = self._recent
        if recent and recent[0][column] <= target:
            return recent[bisect_right(recent, target, key=itemgetter(column)) - 1]
        return self._search(column, target, waits=waits)[1]

    def truncate(self, column: int, bound: int) -> None:
        """Keep the entries whose column is below the bound."""
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
        if not self._fs.exists(self._path):
            self.create()
            return
        self._recent.clear()
        self._count = self._written_count = 0
        self.is_unsynced = True
        self.file().truncate(0)

    def write_pending(self) -> None:
        """Bring the file up to date. Raises OSError and keeps the entries where the disk refuses."""
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
        """On a full disk, or where there are too many open files, the entries wait, as the log does."""
        try:
            self.write_pending()
        except OSError as error:
            if error.errno not in PASSING:
                raise
            return False
        return True

    def open_file(self) -> OpenFile:
        if self._open_file is None:
            self._open_file = open_kept(self._fs, self, self._path, read_only=self._read_only)
        return self._open_file

    @property
    def file_or_path(self) -> OpenFile | str:
        return self._open_file or self._path

    def give_back(self) -> bool:
        self.release()
        return self._open_file is None

    def file(self) -> File:
        return (self._open_file or self.open_file()).file

    def release(self) -> None:
        """Let go of the file and forget the kept entries; the next use opens it again."""
        if self.write_pending_if_possible():
            self._recent.clear()
            self.close()

    def close(self) -> None:
        if self._open_file is not None:
            self._open_file = None
            self._fs.open_files.closed(self)

    def is_sound(self, column_min: Entry) -> bool:
        """Whether the file can be believed: whole entries and no zeros, at or past a bound, in order at both ends."""
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
        if file.size() != self._written_count * self._entry.size:  # padding, or half an entry
            file.truncate(self._written_count * self._entry.size)
        return file

    def _load(self, *, waits: bool = True) -> None:
        """Find the number of entries: all, or those before the zeros."""
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
        data = (self._open_file or self.open_file()).reads(waits=waits).pread(count * size, slot * size)
        assert len(data) == count * size, f"{self._path} became shorter"
        return data

    def _upper_slot(self, column: int, target: int) -> int:
        """The number of entries whose column is not above the target."""
        in_file_count = self.count - len(self._recent)
        if self._recent and self._recent[0][column] <= target:
            return in_file_count + bisect_right(self._recent, target, key=itemgetter(column))
        return self._search(column, target, waits=True)[0]

    def _search(self, column: int, target: int, *, waits: bool) -> tuple[int, Entry | None]:
        """Among those that are in the file alone: how many are not above the target, and the last of these."""
        size, unpack = self._entry.size, self._entry.unpack_from
        low, high = 0, self._count - len(self._recent)
        before: Entry | None = None
        start = self._near
        while low < high:
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
            start = -1
        self._near = max(0, low - 1)
        return low, before


def _upper_slot_in(block: BytesLike, count: int, entry: Struct, column: int, target: int) -> int:
    unpack, size = entry.unpack_from, entry.size
    return bisect_right(range(count), target, key=lambda slot: unpack(block, slot * size)[column])
