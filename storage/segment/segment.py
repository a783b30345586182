"""One segment: batches back to back in a .log file, and the state that is derived from them: index entries, timestamps,
the time to roll.

Its files (`SegmentFiles`) are opened at their first use, closed when too many are open, and synced. The position of a
batch is found through the offset index, which has an entry for about every `index.interval.bytes` of the .log file. A
lookup gives a position at or before the batch, from which on the headers are scanned. The first batch of a segment
never gets an entry, because a lookup without an entry begins at position 0.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from moldau.protocol.primitives import BytesLike, MalformedMessage
from moldau.protocol.record_batch import MAGIC, BatchHeader
from moldau.storage.files.file_slice import FileSlice
from moldau.storage.files.log_paths import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    TEMPORARY_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_name,
)
from moldau.storage.files.open_files import OpenFile, open_for_holder
from moldau.storage.files.port import File, FileSystem
from moldau.storage.log_config import LogConfig
from moldau.storage.segment.batch_run import BatchRun
from moldau.storage.segment.batch_scan import BatchPlace, find_batch, iterate_batch_headers, iterate_batch_places
from moldau.storage.segment.sparse_index import NO_TIMESTAMP, OFFSET_ENTRY, TIME_ENTRY, OffsetIndex, TimeIndex
from moldau.storage.segment.transaction_index import CorruptTransactionIndex, TransactionIndex

RELATIVE_OFFSET_MAX = 0x7FFFFFFF
"""The largest distance of an offset from the base offset of its segment: index entries have 31 bits for it."""


class SegmentTail(NamedTuple):
    """The end of the batches of a segment: its end offset, its end position, and the last leader epoch."""

    end_offset: int
    end_position: int
    leader_epoch: int
    """The leader epoch of the last batch; -1 if there is no batch."""


WRITE_BACK_SIZE = 32 << 20
"""The bytes of appends after which the log's owner has an executor thread start writing the .log file to the disk.
Otherwise the kernel would write all of them at a time of its own choice, and block appends meanwhile."""


CUT_LATER_SIZE_MIN = 1 << 20
"""The size (bytes) of a removed end from which on the next flush truncates the file, because freeing the blocks takes
0.1 ms for each MiB."""


class SegmentFiles:
    """The .log file and the three index files of a segment, as files. `Segment` adds what depends on the batches in
    them. `close` writes nothing. `release` writes pending index entries before it closes the index files.
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
        "uncut_file",
        "write_back_at",
    )

    def __init__(self, fs: FileSystem, directory: str, base_offset: int, size: int) -> None:
        self._fs = fs
        self._directory = directory
        self.base_offset = base_offset
        self.size = size
        """The size (bytes) of the whole batches in the .log file."""
        self.write_back_at = size + WRITE_BACK_SIZE
        """The size (bytes) of the .log file at which an executor thread has to begin to write the latest appends to the
        disk."""
        self.offset_index = OffsetIndex(fs, self.path(OFFSET_INDEX_SUFFIX), base_offset)
        self.time_index = TimeIndex(fs, self.path(TIME_INDEX_SUFFIX), base_offset)
        self.transaction_index = TransactionIndex(fs, self.path(TRANSACTION_INDEX_SUFFIX))
        self._open_file: OpenFile | None = None
        self.uncut_file: OpenFile | None = None
        """The .log file while it has removed batches behind `size`, which the next flush cuts off; else None."""
        self._is_used = False
        """Whether the .log file was used since `close_if_unused` was last called."""

    def path(self, suffix: str) -> str:
        """The path of the segment's file with a suffix."""
        return f"{self._directory}/{offset_name(self.base_offset, suffix)}"

    def existing_suffixes(self) -> list[str]:
        """The suffixes of the segment's files that exist. A segment without aborted transactions has no transaction
        index."""
        return [suffix for suffix in SEGMENT_SUFFIXES if self._fs.exists(self.path(suffix))]

    # The .log file

    def open_file(self) -> OpenFile:
        """Return the .log file, after opening it if it is not open. Raises OSError."""
        if self._open_file is None:
            self._open_file = open_for_holder(self._fs, self, self.path(LOG_SUFFIX))
        return self._open_file

    def file(self) -> File:
        """The open .log file. The caller must use it before its next call on this object. Raises OSError."""
        return (self._open_file or self.open_file()).file

    def has_recorded_size(self) -> bool:
        """Whether the .log file has the size in `size`. True for a file that is not open."""
        return self._open_file is None or self._open_file.file.size() == self.size

    def slice(self, position: int, size: int) -> FileSlice:
        """A part of the .log file that the caller reads, or sends, later. Raises OSError."""
        self._is_used = True
        return FileSlice(self._open_file or self.open_file(), position, size)

    def headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Yield the position and the header of each whole batch from `position` on. Raises OSError and
        `MalformedMessage`."""
        return iterate_batch_headers(self.file(), position, self.size)

    # Indexes

    def has_sound_indexes(self) -> bool:
        """Whether the offset and the time index can be trusted, as far as their first and last entries tell."""
        return self.offset_index.is_sound() and self.time_index.is_sound()

    def has_sound_transaction_index(self, end_offset: int) -> bool:
        """Whether all entries of the transaction index are whole, in order, and of markers in this segment, which ends
        at `end_offset` (exclusive). Raises OSError."""
        try:
            entries = self.transaction_index.entries()
        except CorruptTransactionIndex:
            return False
        return not entries or (self.base_offset <= entries[0].last_offset and entries[-1].last_offset < end_offset)

    # Syncing

    def files_to_sync(self) -> list[OpenFile | str]:
        """The files that a flush must sync: the .log file, and the indexes that were written since the last flush.

        A file that is not open is given as its path. On a full disk the newest index entries stay in memory. An index
        without its newest entries only makes lookups slower.
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
        """Note that the flush that called `files_to_sync` did not sync the indexes."""
        for index in (self.offset_index.entries, self.time_index.entries, self.transaction_index):
            index.is_unsynced = True

    def begin_write_back(self) -> OpenFile:
        """Return the .log file, which an executor thread then syncs to write back recent appends.

        This syncs neither the indexes nor the directory, so the recovery point does not move. Raises OSError.
        """
        self.write_back_at = self.size + WRITE_BACK_SIZE
        return self.open_file()

    # Letting go

    def close_if_unused(self) -> bool:
        """Close the .log file if `OpenFiles` has too many open files, and return True. If the file was used since the
        last call, keep it open and return False. The indexes have a `close_if_unused` of their own."""
        if self._is_used:
            self._is_used = False
            return False
        self._open_file = None
        return True

    def release(self) -> None:
        """Write pending index entries, close all files, and drop what is kept of them in memory. The next use opens the
        files again.
        """
        self.offset_index.entries.release()
        self.time_index.entries.release()
        self.transaction_index.release()
        self._close_file()

    def close(self) -> None:
        """Close all files without writing anything."""
        self.uncut_file = None
        self.offset_index.entries.close()
        self.time_index.entries.close()
        self.transaction_index.close()
        self._close_file()

    def cut_file(self, size: int, *, cuts_later: bool) -> None:
        """Remove the bytes past `size` from the .log file. Raises OSError. With `cuts_later` the next flush cuts off a
        large end, so that the event loop need not wait; nothing may be appended then unless `size` is 0."""
        opened = self.open_file()
        if not cuts_later or (self.size - size < CUT_LATER_SIZE_MIN and self.uncut_file is None):
            opened.file.truncate(size)
        elif size:
            self.uncut_file = opened
        else:  # An empty file takes the name. The last user of the old file closes it, which frees the blocks.
            path = self.path(LOG_SUFFIX)
            self._fs.open(path + TEMPORARY_SUFFIX, create=True).close()
            self._fs.rename(path + TEMPORARY_SUFFIX, path)
            self.uncut_file = None
            self._close_file()
        self.size = size

    def _close_file(self) -> None:
        if self._open_file is not None:
            self._open_file = None
            self._fs.open_files.note_closed(self)


class Segment(SegmentFiles):
    """One segment of a log with its batches. Only the last segment of a log is appended to.

    The timestamps are loaded when they are first needed, so a start that opens thousands of segments reads none of
    them.
    """

    __slots__ = (
        "_bytes_since_index_entry",
        "_first_timestamp",
        "_index_size_max",
        "_indexes_are_full",
        "_timestamps_loaded",
        "created_ms",
        "index_interval_bytes",
        "max_timestamp",
        "offset_of_max_timestamp",
        "roll_jitter_ms",
    )

    def __init__(
        self, fs: FileSystem, directory: str, base_offset: int, config: LogConfig, now_ms: int, size: int
    ) -> None:
        super().__init__(fs, directory, base_offset, size)
        self.created_ms = now_ms
        self.index_interval_bytes = config.index_interval_bytes
        self.roll_jitter_ms = roll_jitter_ms(directory, base_offset, config)
        self._index_size_max = config.segment_index_bytes
        self._indexes_are_full = False
        self._bytes_since_index_entry = 0
        self._first_timestamp: int | None = None
        self._timestamps_loaded = size == 0
        self.max_timestamp = NO_TIMESTAMP
        """The largest timestamp (ms) of all records. It is valid once the timestamps are loaded."""
        self.offset_of_max_timestamp = base_offset
        """The last offset of the batch with the largest timestamp."""

    @classmethod
    def create(cls, fs: FileSystem, directory: str, base_offset: int, config: LogConfig, now_ms: int) -> Segment:
        """Make an empty .log file with an empty offset index and time index. Raises OSError, and then leaves no file:
        with a file that was left, the next start would end the previous segment at the offset in the file's name,
        although batches may have been appended to it meanwhile."""
        segment = cls(fs, directory, base_offset, config, now_ms, 0)
        try:
            opened = segment._open_file = open_for_holder(fs, segment, segment.path(LOG_SUFFIX), create=True)
            opened.file.truncate(0)
            segment.offset_index.entries.create()
            segment.time_index.entries.create()
        except OSError:
            segment.close()
            segment._remove_half_made()
            raise
        return segment

    def _remove_half_made(self) -> None:
        """Remove the files of a segment that could not be made. Raises OSError with EIO if one of them stays, because
        the log must not go on beside it."""
        try:
            for suffix in self.existing_suffixes():
                self._fs.unlink(self.path(suffix))
        except OSError as error:
            path = self.path(LOG_SUFFIX)
            raise OSError(errno.EIO, f"{path} is half made and cannot be removed: {error}") from error

    @classmethod
    def open(cls, fs: FileSystem, directory: str, base_offset: int, config: LogConfig, now_ms: int) -> Segment:
        """Open a segment whose .log file exists. It reads only the size of the file. Raises OSError."""
        size = fs.file_size(f"{directory}/{offset_name(base_offset, LOG_SUFFIX)}")
        return cls(fs, directory, base_offset, config, now_ms, size)

    # Appending

    def append(self, buffers: Sequence[BytesLike], size: int, last_offset: int, max_timestamp: int) -> None:
        """Write one batch of `size` bytes, and note it in the indexes.

        Raises OSError. If the write of the .log file failed, nothing has changed. If the write of an index failed, the
        batch is written; the error is then neither a full disk nor a lack of file descriptors.
        """
        position = self.size
        file = self._ready_file()
        # All or nothing: after a short write the file is truncated to its former size before the error leaves.
        file.append(buffers)
        self.size = position + size
        self.note_appended(position, size, last_offset, max_timestamp)

    def append_run(self, buffers: Sequence[BytesLike], batches: Sequence[tuple[int, int, int]]) -> None:
        """Write several batches in one call, and note them in the indexes. `batches` has the size, the last offset and
        the largest timestamp of each batch.

        Raises OSError as `append` does.
        """
        position = self.size
        size_before_last = 0
        for index in range(len(batches) - 1):
            size_before_last += batches[index][0]
        file = self._ready_file(size_before_last)
        file.append(buffers)
        self.size = position + size_before_last + batches[-1][0]
        for size, last_offset, max_timestamp in batches:
            self.note_appended(position, size, last_offset, max_timestamp)
            position += size

    def may_fill_indexes(self, batches_count: int) -> bool:
        """Whether an index may be full after `batches_count` more batches. Raises OSError."""
        entries_count = max(self.offset_index.entries.count, self.time_index.entries.count) + batches_count
        return entries_count >= self._index_size_max // TIME_ENTRY.size - 1

    def _ready_file(self, size_before_last: int = 0) -> File:
        """Return the .log file for an append, after opening and reading the indexes that `note_appended` may need.
        `size_before_last`: the size (bytes) of the appended batches without the last one.

        So if the process lacks file descriptors, the append fails before the batch is written, and changes nothing.
        """
        if not self._timestamps_loaded:
            self.load_timestamps()
        if self._bytes_since_index_entry + size_before_last > self.index_interval_bytes:
            self.offset_index.entries.load_last_entry()
            self.time_index.entries.load_last_entry()
        self._is_used = True
        return (self._open_file or self.open_file()).file

    def note_appended(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        """Note a batch that is in the file: its timestamps, and an index entry every `index.interval.bytes`."""
        if not self._timestamps_loaded:
            self.load_timestamps()
        if position == 0:
            self._first_timestamp = max_timestamp
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.offset_of_max_timestamp = last_offset
        if self._bytes_since_index_entry > self.index_interval_bytes:
            # The new index entry is for the batch that is appended now; the bytes of this batch count for the next
            # interval.
            self._bytes_since_index_entry = size
            self.offset_index.append(last_offset, position)
            self.time_index.append_if_later(self.max_timestamp, self.offset_of_max_timestamp)
            self._indexes_are_full = self._has_full_index()
        else:
            self._bytes_since_index_entry += size

    def must_roll(self, size: int, last_offset: int, max_timestamp: int, now_ms: int, config: LogConfig) -> bool:
        """Whether a batch has to go into a new segment, because of size, age, a full index or the range of relative
        offsets."""
        if self.size + size > config.segment_bytes or last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
            return True
        if not self.size:
            return False
        # `age_ms` written out for the usual case: this runs for every batch.
        first_timestamp = self._first_timestamp
        if first_timestamp is None or first_timestamp < 0:
            age_ms = self.age_ms(max_timestamp, now_ms)
        else:
            age_ms = max_timestamp - first_timestamp
        return age_ms > config.segment_ms - self.roll_jitter_ms or self._indexes_are_full

    def _has_full_index(self) -> bool:
        """Whether one of the indexes is full. The time index keeps room for the entry that `finish_indexes` adds."""
        return (
            self.offset_index.entries.count >= self._index_size_max // OFFSET_ENTRY.size
            or self.time_index.entries.count >= self._index_size_max // TIME_ENTRY.size - 1
        )

    def age_ms(self, max_timestamp: int, now_ms: int) -> int:
        """The age (ms) of the segment at the append of a batch with `max_timestamp`: the difference between this
        timestamp and that of the segment's first batch. If the first batch has no timestamp, the time from the creation
        of the segment to `now_ms`.
        """
        first_timestamp = self.first_timestamp()
        if first_timestamp is not None and first_timestamp >= 0:
            return max_timestamp - first_timestamp
        return now_ms - self.created_ms

    def first_timestamp(self) -> int | None:
        """The largest timestamp (ms) of the first batch; None if the segment is empty. Raises OSError."""
        if self._first_timestamp is None and self.size:
            for _, header in iterate_batch_headers(self.file(), 0, self.size):
                self._first_timestamp = header.max_timestamp
                break
        return self._first_timestamp

    def finish_indexes(self) -> None:
        """End appending to the segment: add the largest timestamp to the time index as its last entry, and write both
        indexes.

        Retention by time relies on that entry, which gives the largest timestamp without a read of the batches. Raises
        OSError.
        """
        self.load_timestamps()
        if self.max_timestamp >= 0:
            self.time_index.append_if_later(self.max_timestamp, self.offset_of_max_timestamp)
        self.offset_index.entries.write_pending()
        self.time_index.entries.write_pending()

    # Reading

    def find_batch(self, offset: int, start_position: int = 0, *, waits: bool = True) -> BatchPlace | None:
        """Return the batch that contains `offset`, or the first one after it; None if all batches end before it.

        Without `waits` it raises `NotCached` if it would have to wait for the disk. It raises `MalformedMessage` if the
        file does not consist of whole batches up to its recorded size, and OSError if the disk failed.
        """
        named_offset, position = self.offset_index.entry_at_or_before(offset, waits=waits)
        reads = (self._open_file or self.open_file()).readable(waits=waits)
        if start_position > position:
            return find_batch(reads, start_position, self.size, offset, is_whole=True)
        if 0 < position < self.size:
            try:
                return find_batch(reads, position, self.size, offset, is_whole=True, named_offset=named_offset)
            except MalformedMessage:
                pass  # The entry names no batch, or the log is damaged: the walk from the beginning says which.
        return find_batch(reads, 0, self.size, offset, is_whole=True)

    def start_position(self, offset: int) -> int:
        """Return the position of a batch at or before `offset`, at which a scan of the headers can begin. It comes from
        an index entry if the batch that the entry names is in the file; otherwise it is 0. Raises OSError."""
        last_offset, position = self.offset_index.entry_at_or_before(offset)
        return position if position and self._has_batch(position, last_offset) else 0

    def _has_batch(self, position: int, offset: int) -> bool:
        """Whether a batch that contains `offset` begins at `position`, as an index entry says. Raises OSError."""
        if not 0 <= position < self.size:
            return False
        try:
            place = next(iterate_batch_places(self.file(), position, self.size), None)
        except MalformedMessage:
            return False
        return place is not None and place.base_offset <= offset <= place.last_offset

    def find_tail(self) -> SegmentTail | None:
        """Find the end of the batches, from the last index entry and the headers after it. None if an index names a
        batch that is not in the file. Raises OSError, and `MalformedMessage` if a batch is not followed by another one
        or the end.
        """
        if not self.has_sound_indexes():
            return None
        last_offset, position = self.offset_index.last_entry()
        if position and not self._has_batch(position, last_offset):
            return None
        last: BatchPlace | None = None
        for place in iterate_batch_places(self.file(), position, self.size):
            last = place
        if last is None:
            return SegmentTail(self.base_offset, 0, -1)
        if self.time_index.last_entry()[1] > last.last_offset:
            return None
        _, header = next(self.headers(last.position))
        leader_epoch = header.partition_leader_epoch if header.magic == MAGIC else -1
        return SegmentTail(last.last_offset + 1, last.position + last.size, leader_epoch)

    def indexed_end_offset(self) -> int:
        """The offset after the last batch that the offset index names; 0 if it names none or cannot be trusted. Raises
        OSError."""
        return self.offset_index.last_entry()[0] + 1 if self.offset_index.is_sound() else 0

    # Timestamps

    def load_timestamps(self) -> None:
        """Set `max_timestamp` from the last entry of the time index and the batch headers after the last entry of the
        offset index. If the entry of the time index does not agree with its batch, all headers are read.

        Raises OSError and `MalformedMessage`.
        """
        if self._timestamps_loaded:
            return
        max_timestamp, its_offset = self.time_index.last_entry()
        last_offset, position = self.offset_index.last_entry()
        if not self._has_timestamp(max_timestamp, its_offset):
            max_timestamp, its_offset, position = NO_TIMESTAMP, self.base_offset, 0
        elif position and not self._has_batch(position, last_offset):
            position = 0
        for _, header in iterate_batch_headers(self.file(), position, self.size):
            if header.max_timestamp > max_timestamp:
                max_timestamp, its_offset = header.max_timestamp, header.last_offset
        # Only now: if the process has no file descriptor left, the next call reads them.
        self.max_timestamp, self.offset_of_max_timestamp = max_timestamp, its_offset
        self._timestamps_loaded = True

    def _has_timestamp(self, timestamp: int, offset: int) -> bool:
        """Whether the batch that contains `offset` has `timestamp` as its largest timestamp. Raises OSError and
        `MalformedMessage`."""
        if timestamp > NO_TIMESTAMP:
            for _, header in iterate_batch_headers(self.file(), self.start_position(offset), self.size):
                if header.last_offset >= offset:
                    return header.base_offset <= offset and header.max_timestamp == timestamp
        return False

    def largest_timestamp(self) -> int:
        """The largest timestamp of the records in ms. If the records have none, the time at which the .log file was
        last changed."""
        self.load_timestamps()
        return self.max_timestamp if self.max_timestamp >= 0 else self._fs.modified_ms(self.path(LOG_SUFFIX))

    def local_retention_timestamp_ms(self, now_ms: int) -> int:
        """The timestamp (ms) by which local retention judges a copied segment: its largest timestamp, or the file's
        modification time if that timestamp is in the future.
        """
        largest = self.largest_timestamp()
        return largest if largest <= now_ms else self._fs.modified_ms(self.path(LOG_SUFFIX))

    # Truncating and recovering

    def truncate_to(self, offset: int, now_ms: int) -> int:
        """Remove the batch that contains `offset` and everything after it. The next append goes into another segment,
        unless this one is empty then. Returns the new end offset. Raises OSError and `MalformedMessage`."""
        place = self.find_batch(offset)
        position = place.position if place else self.size
        # The indexes are truncated before the file. If a crash comes between, an index that ends early only makes a
        # lookup longer; one that points past the end of the file would be wrong.
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        self.truncate_file(position, now_ms, cuts_later=True)
        return min(offset, place.base_offset) if place else offset

    def truncate_file(self, position: int, now_ms: int, *, cuts_later: bool = False) -> None:
        """Truncate the .log file to `position`, as `cut_file` does; the caller truncates the indexes.

        Raises OSError and `MalformedMessage`.
        """
        if position < self.size:
            self.cut_file(position, cuts_later=cuts_later)
            if cuts_later:
                self._indexes_are_full = position > 0
        if not position:
            self.created_ms = now_ms
            self._first_timestamp = None
        self._bytes_since_index_entry = 0
        self._timestamps_loaded = False
        self.load_timestamps()

    def reset_indexes(self) -> None:
        """Empty the offset index and the time index. `note_appended` then fills them again from the first batch on."""
        self.offset_index.entries.clear()
        self.time_index.entries.clear()
        self.max_timestamp, self.offset_of_max_timestamp = NO_TIMESTAMP, self.base_offset
        self._timestamps_loaded = True
        self._bytes_since_index_entry = 0

    def resume_indexes(self) -> None:
        """Prepare the segment so that `note_appended` can be called for the batches after the last entry of the offset
        index, beginning with the batch of that entry."""
        self.max_timestamp, self.offset_of_max_timestamp = self.time_index.last_entry()
        self._timestamps_loaded = True
        self._bytes_since_index_entry = 0

    def start_batch_run(self, run: BatchRun) -> None:
        """Set the fields of `run` from which it continues the index entries of this segment."""
        run.index_interval_bytes = self.index_interval_bytes
        run.bytes_since_index_entry = self._bytes_since_index_entry
        run.max_timestamp, run.offset_of_max_timestamp = self.max_timestamp, self.offset_of_max_timestamp

    def add_batch_run(self, run: BatchRun) -> None:
        """Note the batches that `run` has collected, as `note_appended` would note each of them."""
        for last_offset, position, max_timestamp, offset_of_max_timestamp in run.index_entries:
            self.offset_index.append(last_offset, position)
            self.time_index.append_if_later(max_timestamp, offset_of_max_timestamp)
        if run.index_entries:
            self._indexes_are_full = self._has_full_index()
        self._bytes_since_index_entry = run.bytes_since_index_entry
        self.max_timestamp, self.offset_of_max_timestamp = run.max_timestamp, run.offset_of_max_timestamp


def roll_jitter_ms(directory: str, base_offset: int, config: LogConfig) -> int:
    """The time (ms) by which a segment rolls earlier than segment.ms, so that not all partitions roll at once.

    DIVERGES: the jitter is computed from the names and not drawn at random, so that it is the same after a restart, and
    in a replayed simulation.
    """
    if config.segment_jitter_ms <= 0:
        return 0
    seed = base_offset
    for character in directory.rpartition("/")[2]:
        seed = (seed * 31 + ord(character)) & 0xFFFFFFFF
    return seed % min(config.segment_jitter_ms, config.segment_ms)
