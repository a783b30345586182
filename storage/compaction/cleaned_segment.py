"""Writing a cleaned segment: the .log file and its indexes, under names that end in `.cleaned`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from moldau.protocol.primitives import BytesLike
from moldau.storage.files.log_paths import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_name,
)
from moldau.storage.files.port import FileSystem
from moldau.storage.segment.offset_index import OffsetIndex
from moldau.storage.segment.time_index import NO_TIMESTAMP, TimeIndex
from moldau.storage.segment.transaction_index import AbortedTransaction, TransactionIndex


class CleanedBatch(NamedTuple):
    """A batch to be written, with the offset and the timestamp for the indexes."""

    data: BytesLike
    last_offset: int
    max_timestamp: int


class CleanedSegment:
    """The files of one cleaned segment. The constructor first removes what an earlier attempt left under these names,
    and raises OSError."""

    __slots__ = (
        "_bytes_since_index_entry",
        "_directory",
        "_file",
        "_fs",
        "_index_interval_bytes",
        "_max_timestamp",
        "_offset_index",
        "_offset_of_max_timestamp",
        "_time_index",
        "_transaction_index",
        "base_offset",
        "size",
    )

    def __init__(self, fs: FileSystem, directory: str, base_offset: int, index_interval_bytes: int) -> None:
        self._fs = fs
        self._directory = directory
        self._index_interval_bytes = index_interval_bytes
        self.base_offset = base_offset
        self.size = 0
        self._bytes_since_index_entry = 0
        self._max_timestamp = NO_TIMESTAMP
        self._offset_of_max_timestamp = base_offset
        self._remove_files()
        self._file = fs.open(self.path(LOG_SUFFIX), create=True)
        self._offset_index = OffsetIndex(fs, self.path(OFFSET_INDEX_SUFFIX), base_offset)
        self._time_index = TimeIndex(fs, self.path(TIME_INDEX_SUFFIX), base_offset)
        self._transaction_index = TransactionIndex(fs, self.path(TRANSACTION_INDEX_SUFFIX))
        self._offset_index.entries.create()
        self._time_index.entries.create()

    def path(self, suffix: str) -> str:
        """The path of one of the segment's files."""
        return f"{self._directory}/{offset_name(self.base_offset, suffix)}{CLEANED_SUFFIX}"

    def append(self, batches: Sequence[CleanedBatch]) -> None:
        """Write several batches in one call. Raises OSError."""
        self._file.append([each.data for each in batches])
        for each in batches:
            self._note(len(each.data), each.last_offset, each.max_timestamp)

    def note_aborted(self, aborted: AbortedTransaction) -> None:
        """Enter an aborted transaction in the transaction index: its marker is kept in this segment. Raises OSError."""
        self._transaction_index.append(aborted)

    def _note(self, size: int, last_offset: int, max_timestamp: int) -> None:
        """Add a batch to the indexes, by the same rule as an append (`Segment.note_appended`)."""
        if max_timestamp > self._max_timestamp:
            self._max_timestamp, self._offset_of_max_timestamp = max_timestamp, last_offset
        if self._bytes_since_index_entry > self._index_interval_bytes:
            self._bytes_since_index_entry = 0
            self._offset_index.append(last_offset, self.size)
            self._time_index.append_if_later(self._max_timestamp, self._offset_of_max_timestamp)
        self._bytes_since_index_entry += size
        self.size += size

    def finish(self) -> tuple[str, ...]:
        """Write the rest of the indexes, sync all files and close them. Returns their suffixes. Raises OSError."""
        if self._max_timestamp >= 0:
            self._time_index.append_if_later(self._max_timestamp, self._offset_of_max_timestamp)
        self._file.sync()
        for index in (self._offset_index.entries, self._time_index.entries):
            index.write_pending()
            index.file().sync()
        opened = self._transaction_index.open_file()
        if opened is not None:
            opened.file.sync()
        self.close()
        return tuple(suffix for suffix in SEGMENT_SUFFIXES if self._fs.exists(self.path(suffix)))

    def close(self) -> None:
        """Close the files; closing twice is allowed."""
        self._file.close()
        self._offset_index.entries.close()
        self._time_index.entries.close()
        self._transaction_index.close()

    def discard(self) -> None:
        """Close and remove the files. Raises OSError."""
        self.close()
        self._remove_files()

    def _remove_files(self) -> None:
        for suffix in SEGMENT_SUFFIXES:
            if self._fs.exists(self.path(suffix)):
                self._fs.unlink(self.path(suffix))
