"""The transaction index of a segment: its aborted transactions, in a file that is made for the first of them.

A read_committed consumer gets the aborted transactions that overlap its read (`Log.aborted_transactions`) and skips
their records. The entry of a transaction is in the index of the segment with its abort marker, which may be a later
segment than that with its records. So a lookup continues in later segments, until it finds an entry whose last stable
offset is past the read.
"""

from __future__ import annotations

import errno
from bisect import bisect_left
from struct import Struct

from moldau.protocol.late_tuple import NamedTuple
from moldau.storage.files.open_files import OpenFile, open_for_holder
from moldau.storage.files.port import FileSystem

ENTRY = Struct(">hqqqq")
VERSION = 0


class CorruptTransactionIndex(OSError):
    """A transaction index does not consist of whole entries in order. The next start makes it again from the batches.

    Its `errno` is EBADMSG, by which a log distinguishes damage from an error of the disk.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(errno.EBADMSG, reason, path)
        self._path = path
        self._reason = reason

    def __reduce__(self) -> tuple[type[CorruptTransactionIndex], tuple[str, str]]:
        """Pickle the error, because the cleaner's process reports it to the broker."""
        return CorruptTransactionIndex, (self._path, self._reason)


class AbortedTransaction(NamedTuple):
    """One entry of a transaction index."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of the abort marker."""
    last_stable_offset: int
    """The log's last stable offset when the marker was appended and this transaction was decided."""


class TransactionIndex:
    """The transaction index of one segment. The file is read as a whole at the first use, because it has only one entry
    for each abort."""

    __slots__ = ("_entries", "_fs", "_markers", "_open_file", "_path", "is_unsynced")

    def __init__(self, fs: FileSystem, path: str) -> None:
        self._fs = fs
        self._path = path
        self._open_file: OpenFile | None = None
        self._entries: list[AbortedTransaction] | None = None
        self._markers: list[int] = []
        """The offsets of the abort markers of all entries, for lookups."""
        self.is_unsynced = False
        """Whether the file was changed since the last flush collected it for a sync."""

    def entries(self) -> list[AbortedTransaction]:
        """All entries of the index. Raises OSError, and its subclass `CorruptTransactionIndex`."""
        if self._entries is None:
            self._entries = self._load()
            self._markers = [each.last_offset for each in self._entries]
        return self._entries

    def append(self, aborted: AbortedTransaction) -> None:
        """Add an entry and write it. Raises OSError, and its subclass `CorruptTransactionIndex`."""
        entries = self.entries()
        assert not entries or aborted.last_offset > entries[-1].last_offset, (
            "aborted transactions are noted in the order of their markers"
        )
        if self._open_file is None:
            self._open_file = open_for_holder(self._fs, self, self._path, create=True)
        self.is_unsynced = True
        self._open_file.file.append([ENTRY.pack(VERSION, *aborted)])
        entries.append(aborted)
        self._markers.append(aborted.last_offset)

    def count_markers_from(self, first_offset: int) -> int:
        """The number of aborted transactions whose marker is at or past `first_offset`.

        Raises OSError, and its subclass `CorruptTransactionIndex`.
        """
        return len(self.entries()) - bisect_left(self._markers, first_offset)

    def overlapping_transactions(self, first_offset: int, end_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """The aborted transactions of this segment that overlap [first_offset, end_offset), and whether no later
        segment can have another one."""
        found = []
        entries = self.entries()
        for slot in range(bisect_left(self._markers, first_offset), len(entries)):
            aborted = entries[slot]
            if aborted.first_offset < end_offset:
                found.append(aborted)
            if aborted.last_stable_offset >= end_offset:
                return found, True
        return found, False

    def truncate_to(self, offset: int) -> None:
        """Remove the entries whose markers are at or past `offset`. Raises OSError, and its subclass
        `CorruptTransactionIndex`."""
        entries = self.entries()
        kept_count = sum(aborted.last_offset < offset for aborted in entries)
        if kept_count < len(entries):
            del entries[kept_count:], self._markers[kept_count:]
            open_file = self.open_file()
            assert open_file is not None
            self.is_unsynced = True
            open_file.file.truncate(kept_count * ENTRY.size)

    def clear(self) -> None:
        """Remove all entries. Raises OSError."""
        self._entries, self._markers = [], []
        open_file = self.open_file()
        if open_file is not None:
            self.is_unsynced = True
            open_file.file.truncate(0)

    def open_file(self) -> OpenFile | None:
        """Return the index file, after opening it if it is not open; None if there is no file. Raises OSError."""
        if self._open_file is None and self._fs.exists(self._path):
            self._open_file = open_for_holder(self._fs, self, self._path)
        return self._open_file

    @property
    def file_or_path(self) -> OpenFile | str:
        return self._open_file or self._path

    def close_if_unused(self) -> bool:
        """Close the file, because `OpenFiles` has too many open files. Returns True."""
        self.close()
        return True

    def release(self) -> None:
        """Close the file and drop the entries in memory."""
        self._entries, self._markers = None, []
        self.close()

    def close(self) -> None:
        if self._open_file is not None:
            self._open_file = None
            self._fs.open_files.note_closed(self)

    def _load(self) -> list[AbortedTransaction]:
        if not self._fs.exists(self._path):
            return []
        return decode_entries(self._path, self._fs.read(self._path))


def decode_entries(path: str, data: bytes) -> list[AbortedTransaction]:
    """Decode the content of a transaction index file; `path` is for the messages. Raises `CorruptTransactionIndex`."""
    if len(data) % ENTRY.size:
        raise CorruptTransactionIndex(path, f"{len(data)} bytes are not whole entries")
    entries: list[AbortedTransaction] = []
    for version, *fields in ENTRY.iter_unpack(data):
        entry = AbortedTransaction(*fields)
        if version != VERSION or not _is_sound(entry, entries[-1].last_offset if entries else -1):
            raise CorruptTransactionIndex(path, f"entry {len(entries)} is {version, *fields}")
        entries.append(entry)
    return entries


def _is_sound(entry: AbortedTransaction, offset_before: int) -> bool:
    """Whether an entry is possible after an entry whose marker is at `offset_before`.

    A loss of power may leave zeros in place of written entries. Such an entry is not sound, because a transaction has
    at least one batch before its marker.
    """
    in_order = max(offset_before, entry.first_offset) < entry.last_offset
    return in_order and entry.first_offset >= 0 and entry.last_stable_offset <= entry.last_offset + 1
