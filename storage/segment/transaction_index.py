"""The transaction index of a segment: its aborted transactions, in a file that is made for the first of them.

A read_committed consumer gets the aborted transactions that overlap its read (`Log.aborted_transactions`) and skips
their records. An entry is in the segment that holds the abort marker, which may be a later one than the segment of the
records. A lookup therefore continues in later segments, up to an entry whose last stable offset is past the read.
"""

from __future__ import annotations

import errno
from bisect import bisect_left
from struct import Struct

from moldau.protocol.late_tuple import NamedTuple
from moldau.storage.files.open_files import OpenFile, open_kept
from moldau.storage.files.port import FileSystem

ENTRY = Struct(">hqqqq")
VERSION = 0


class CorruptTransactionIndex(OSError):
    """The file does not consist of whole entries in order: the next start makes it again from the batches.

    Its `errno` is EBADMSG: by this a log distinguishes damage from an error of the disk.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(errno.EBADMSG, reason, path)
        self._path = path
        self._reason = reason

    def __reduce__(self) -> tuple[type[CorruptTransactionIndex], tuple[str, str]]:
        """Pickle the error: the cleaner's process reports it to the broker."""
        return CorruptTransactionIndex, (self._path, self._reason)


class AbortedTransaction(NamedTuple):
    """One entry of the index."""

    producer_id: int
    first_offset: int
    last_offset: int
    """Offset of the abort marker."""
    last_stable_offset: int
    """The log's last stable offset when the marker was appended and this transaction was decided."""


class TransactionIndex:
    """The index of one segment. It is read as a whole at its first use: it has one entry for each abort."""

    __slots__ = ("_entries", "_fs", "_markers", "_open_file", "_path", "is_unsynced")

    def __init__(self, fs: FileSystem, path: str) -> None:
        self._fs = fs
        self._path = path
        self._open_file: OpenFile | None = None
        self._entries: list[AbortedTransaction] | None = None
        self._markers: list[int] = []
        """The last offsets of the entries, for lookups."""
        self.is_unsynced = False
        """The file was changed since the owner last synced it."""

    def entries(self) -> list[AbortedTransaction]:
        """All entries. Raises OSError, `CorruptTransactionIndex` among them."""
        if self._entries is None:
            self._entries = self._load()
            self._markers = [each.last_offset for each in self._entries]
        return self._entries

    def append(self, aborted: AbortedTransaction) -> None:
        """Add an entry. Raises OSError, `CorruptTransactionIndex` among them."""
        entries = self.entries()
        assert not entries or aborted.last_offset > entries[-1].last_offset, (
            "aborted transactions are noted in the order of their markers"
        )
        if self._open_file is None:
            self._open_file = open_kept(self._fs, self, self._path, create=True)
        self.is_unsynced = True
        self._open_file.file.append([ENTRY.pack(VERSION, *aborted)])
        entries.append(aborted)
        self._markers.append(aborted.last_offset)

    def count_from(self, first_offset: int) -> int:
        """The number of aborted transactions with their marker at or past an offset.

        Raises OSError, `CorruptTransactionIndex` among them.
        """
        return len(self.entries()) - bisect_left(self._markers, first_offset)

    def collect(self, first_offset: int, end_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """The aborted transactions that overlap [first, end), and whether no later segment can hold another one."""
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
        """Remove the entries of markers at or past an offset. Raises OSError, `CorruptTransactionIndex` among them."""
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
        """The file, opened if it is not open; None if there is no file. Raises OSError."""
        if self._open_file is None and self._fs.exists(self._path):
            self._open_file = open_kept(self._fs, self, self._path)
        return self._open_file

    @property
    def file_or_path(self) -> OpenFile | str:
        return self._open_file or self._path

    def give_back(self) -> bool:
        """Close the file for `OpenFiles`."""
        self.close()
        return True

    def release(self) -> None:
        """Close the file and drop the entries in memory."""
        self._entries, self._markers = None, []
        self.close()

    def close(self) -> None:
        if self._open_file is not None:
            self._open_file = None
            self._fs.open_files.closed(self)

    def _load(self) -> list[AbortedTransaction]:
        if not self._fs.exists(self._path):
            return []
        return decode_entries(self._path, self._fs.read(self._path))


def decode_entries(path: str, data: bytes) -> list[AbortedTransaction]:
    """The entries in the content of an index; `path` is for the messages. Raises `CorruptTransactionIndex`."""
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
    """Whether an entry may follow the marker at an offset.

    A loss of power may leave zeros in place of written entries; no transaction is that short.
    """
    in_order = max(offset_before, entry.first_offset) < entry.last_offset
    return in_order and entry.first_offset >= 0 and entry.last_stable_offset <= entry.last_offset + 1
