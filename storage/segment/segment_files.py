"""The files of one segment: opened at their first use, closed when too many are open, synced."""

from __future__ import annotations

from collections.abc import Iterator

from moldau.protocol.record_batch import BatchHeader
from moldau.storage.files.file_slice import FileSlice
from moldau.storage.files.log_paths import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_name,
)
from moldau.storage.files.open_file import OpenFile
from moldau.storage.files.open_files import open_kept
from moldau.storage.files.port import File, FileSystem
from moldau.storage.segment.batch_scan import walk_headers
from moldau.storage.segment.offset_index import OffsetIndex
from moldau.storage.segment.time_index import TimeIndex
from moldau.storage.segment.transaction_index import CorruptTransactionIndex, TransactionIndex

WRITE_BACK_SIZE = 32 << 20
"""Bytes of appends after which the owner has an executor thread start writing the .log file to the disk. Otherwise the
kernel would write all of it at a time of its own choice, and block appends meanwhile."""


class SegmentFiles:
    """The .log file and the three index files of a segment, as files. `Segment` adds what depends on the batches in
    them. Closing files here never writes anything, except that `release` writes index entries that are still in
    memory.
    """

    __slots__ = (
        "_directory",
        "_fs",
        "_is_used",
        "_open_file",
        "base_offset",
        "offset_index",
        "size",
        "time_index",
        "transaction_index",
        "write_back_at",
    )

    def __init__(self, fs: FileSystem, directory: str, base_offset: int, size: int) -> None:
        self._fs = fs
        self._directory = directory
        self.base_offset = base_offset
        self.size = size
        """Bytes of whole batches in the .log file."""
        self.write_back_at = size + WRITE_BACK_SIZE
        """The size (bytes) of the file at which its owner starts to write the latest appends to the disk."""
        self.offset_index = OffsetIndex(fs, self.path(OFFSET_INDEX_SUFFIX), base_offset)
        self.time_index = TimeIndex(fs, self.path(TIME_INDEX_SUFFIX), base_offset)
        self.transaction_index = TransactionIndex(fs, self.path(TRANSACTION_INDEX_SUFFIX))
        self._open_file: OpenFile | None = None
        self._is_used = False
        """The .log file was used since `give_back` was last called."""

    def path(self, suffix: str) -> str:
        """The path of one of the files."""
        return f"{self._directory}/{offset_name(self.base_offset, suffix)}"

    def existing_suffixes(self) -> list[str]:
        """The suffixes of the files that are there: a segment without aborted transactions has no transaction index."""
        return [suffix for suffix in SEGMENT_SUFFIXES if self._fs.exists(self.path(suffix))]

    # The .log file

    def open_file(self) -> OpenFile:
        """The .log file, opened where it is not open. Raises OSError."""
        if self._open_file is None:
            self._open_file = open_kept(self._fs, self, self.path(LOG_SUFFIX))
        return self._open_file

    def file(self) -> File:
        """The open .log file. The caller uses it before its next call on this object. Raises OSError."""
        return (self._open_file or self.open_file()).file

    def is_as_noted(self) -> bool:
        """Whether the .log file has the size that is noted here, as far as is known without opening it."""
        return self._open_file is None or self._open_file.file.size() == self.size

    def slice(self, position: int, size: int) -> FileSlice:
        """Bytes of the .log file that the caller reads, or sends, later. Raises OSError."""
        self._is_used = True
        return FileSlice(self._open_file or self.open_file(), position, size)

    def headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of the whole batches from a position on. Raises OSError and `MalformedMessage`."""
        return walk_headers(self.file(), position, self.size)

    # Indexes

    def has_sound_indexes(self) -> bool:
        """Whether the offset and the time index can be trusted, as far as their first and last entries tell."""
        return self.offset_index.is_sound() and self.time_index.is_sound()

    def has_sound_transaction_index(self) -> bool:
        """Whether all entries of the transaction index are whole and in order. Raises OSError."""
        try:
            self.transaction_index.entries()
        except CorruptTransactionIndex:
            return False
        return True

    # Syncing

    def files_to_sync(self) -> list[OpenFile | str]:
        """What a flush must sync: the .log file, and the indexes that were written since the last flush.

        A path stands for a file that is not open. On a full disk the newest index entries stay in memory; an index that
        ends early only costs lookups a longer walk.
        """
        self.offset_index.entries.write_pending_if_possible()
        self.time_index.entries.write_pending_if_possible()
        files: list[OpenFile | str] = [self._open_file or self.path(LOG_SUFFIX)]
        for index in (self.offset_index.entries, self.time_index.entries, self.transaction_index):
            if index.is_unsynced:
                files.append(index.file_or_path)
                index.is_unsynced = False
        return files

    def note_not_synced(self) -> None:
        """The flush that took `files_to_sync` did not sync them."""
        for index in (self.offset_index.entries, self.time_index.entries, self.transaction_index):
            index.is_unsynced = True

    def begin_write_back(self) -> OpenFile:
        """The .log file, for an executor thread to sync.

        This syncs neither the indexes nor the directory, so the recovery point does not move. Raises OSError.
        """
        self.write_back_at = self.size + WRITE_BACK_SIZE
        return self.open_file()

    # Letting go

    def give_back(self) -> bool:
        """Close the .log file for `OpenFiles`, which asks the indexes for theirs separately."""
        if self._is_used:
            self._is_used = False
            return False
        self._open_file = None
        return True

    def release(self) -> None:
        """Close all files and drop what is kept of them in memory; the next use opens them again."""
        self.offset_index.entries.release()
        self.time_index.entries.release()
        self.transaction_index.release()
        self._close_file()

    def close(self) -> None:
        """Close all files without writing anything."""
        self.offset_index.entries.close()
        self.time_index.entries.close()
        self.transaction_index.close()
        self._close_file()

    def _close_file(self) -> None:
        if self._open_file is not None:
            self._open_file = None
            self._fs.open_files.closed(self)
