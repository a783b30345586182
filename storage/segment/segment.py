"""One segment: a .log file of batches back to back with its sparse indexes. Files are opened when they are needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from protocol.primitives import BytesLike
from protocol.record_batch import BatchHeader
from storage.files.file_slice import FileSlice
from storage.files.open_file import OpenFile
from storage.files.open_files import open_kept
from storage.files.port import File, FileSystem
from storage.log.log_config import LogConfig
from storage.log.log_paths import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_name,
)
from storage.segment.batch_run import BatchRun
from storage.segment.batch_scan import BatchPlace, find_batch, walk_headers, walk_places
from storage.segment.offset_index import ENTRY as OFFSET_ENTRY
from storage.segment.offset_index import OffsetIndex
from storage.segment.time_index import ENTRY as TIME_ENTRY
from storage.segment.time_index import NO_TIMESTAMP, TimeIndex
from storage.segment.transaction_index import CorruptTransactionIndex, TransactionIndex

RELATIVE_OFFSET_MAX = 0x7FFFFFFF
WRITE_BACK_SIZE = 32 << 20
"""So much of a .log file is written before its owner has it brought to the disk: later the kernel would do it when it
likes, and let writes wait meanwhile."""


class Segment:
    __slots__ = (
        "_bytes_since_index_entry",
        "_directory",
        "_first_timestamp",
        "_fs",
        "_index_size_max",
        "_indexes_are_full",
        "_is_used",
        "_open_file",
        "_timestamps_loaded",
        "base_offset",
        "created_ms",
        "index_interval_bytes",
        "max_timestamp",
        "offset_index",
        "offset_of_max_timestamp",
        "roll_jitter_ms",
        "size",
        "time_index",
        "transaction_index",
        "write_back_at",
    )

    def __init__(
        self, fs: FileSystem, directory: str, base_offset: int, config: LogConfig, now_ms: int, size: int
    ) -> None:
        self._fs = fs
        self._directory = directory
        self.base_offset = base_offset
        self.size = size
        self.write_back_at = size + WRITE_BACK_SIZE
        """At this size what was written lately is due to be brought to the disk."""
        self.created_ms = now_ms
        self.index_interval_bytes = config.index_interval_bytes
        self.roll_jitter_ms = roll_jitter_ms(directory, base_offset, config)
        self.offset_index = OffsetIndex(fs, self.path(OFFSET_INDEX_SUFFIX), base_offset)
        self.time_index = TimeIndex(fs, self.path(TIME_INDEX_SUFFIX), base_offset)
        self.transaction_index = TransactionIndex(fs, self.path(TRANSACTION_INDEX_SUFFIX))
        self._open_file: OpenFile | None = None
        self._index_size_max = config.segment_index_bytes
        self._indexes_are_full = False
        self._is_used = False
        """Since somebody last asked for its descriptor."""
        self._bytes_since_index_entry = 0
        self._first_timestamp: int | None = None
        self._timestamps_loaded = size == 0
        self.max_timestamp = NO_TIMESTAMP
        self.offset_of_max_timestamp = base_offset

    @classmethod
    def create(cls, fs: FileSystem, directory: str, base_offset: int, config: LogConfig, now_ms: int) -> Segment:
        """Make the three files, empty. What an earlier attempt left behind under these names is cut to nothing."""
        segment = cls(fs, directory, base_offset, config, now_ms, 0)
        try:
            opened = segment._open_file = open_kept(fs, segment, segment.path(LOG_SUFFIX), create=True)
            opened.file.truncate(0)
            segment.offset_index.entries.create()
            segment.time_index.entries.create()
        except OSError:
            segment.close()
            raise
        return segment

    @classmethod
    def open(cls, fs: FileSystem, directory: str, base_offset: int, config: LogConfig, now_ms: int) -> Segment:
        size = fs.file_size(f"{directory}/{offset_name(base_offset, LOG_SUFFIX)}")
        return cls(fs, directory, base_offset, config, now_ms, size)

    def path(self, suffix: str) -> str:
        return f"{self._directory}/{offset_name(self.base_offset, suffix)}"

    def open_file(self) -> OpenFile:
        if self._open_file is None:
            self._open_file = open_kept(self._fs, self, self.path(LOG_SUFFIX))
        return self._open_file

    def give_back(self) -> bool:
        """The .log file; its indexes hold theirs themselves."""
        if self._is_used:
            self._is_used = False
            return False
        self._open_file = None
        return True

    def file(self) -> File:
        return (self._open_file or self.open_file()).file

    # Appending

    def append(self, buffers: Sequence[BytesLike], size: int, last_offset: int, max_timestamp: int) -> None:
        """Write one batch. Raises OSError before anything has changed, or from the index with the batch written: that
        is never for a lack of room or of descriptors."""
        position = self.size
        file = self._ready_file()
        file.append(buffers)
        self.size = position + size
        self.note_appended(position, size, last_offset, max_timestamp)

    def append_run(self, run: BytesLike, batches: Sequence[tuple[int, int, int]]) -> None:
        """Write several batches in one call; of each (size, last offset, max timestamp). Raises OSError as `append`."""
        position = self.size
        file = self._ready_file()
        file.append([run])
        self.size = position + len(run)
        for size, last_offset, max_timestamp in batches:
            self.note_appended(position, size, last_offset, max_timestamp)
            position += size

    def _ready_file(self) -> File:
        """The .log file, with everything opened and read that taking note of a batch in it may need."""
        if not self._timestamps_loaded:
            self.load_timestamps()
        if self._bytes_since_index_entry > self.index_interval_bytes:
            self.offset_index.entries.remember_last()
            self.time_index.entries.remember_last()
        self._is_used = True
        return (self._open_file or self.open_file()).file

    def is_as_noted(self) -> bool:
        """Whether the .log file holds what was noted of it and nothing else, as far as is known without opening it."""
        return self._open_file is None or self._open_file.file.size() == self.size

    def note_appended(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        """Account for a batch that lies in the file: timestamps, and an index entry every so many bytes."""
        if not self._timestamps_loaded:
            self.load_timestamps()
        if position == 0:
            self._first_timestamp = max_timestamp
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.offset_of_max_timestamp = last_offset
        if self._bytes_since_index_entry > self.index_interval_bytes:
            self._bytes_since_index_entry = size
            self.offset_index.append(last_offset, position)
            self.time_index.append_if_later(self.max_timestamp, self.offset_of_max_timestamp)
            self._indexes_are_full = self._has_full_index()
        else:
            self._bytes_since_index_entry += size

    def begin_run(self, run: BatchRun) -> None:
        """Let a walk over batches go on where the indexes stand."""
        run.index_interval_bytes = self.index_interval_bytes
        run.bytes_since_index_entry = self._bytes_since_index_entry
        run.max_timestamp, run.offset_of_max_timestamp = self.max_timestamp, self.offset_of_max_timestamp

    def note_run(self, run: BatchRun) -> None:
        """Account for the batches that the walk took, as `note_appended` for each of them."""
        for last_offset, position, max_timestamp, offset_of_max_timestamp in run.index_entries:
            self.offset_index.append(last_offset, position)
            self.time_index.append_if_later(max_timestamp, offset_of_max_timestamp)
        if run.index_entries:
            self._indexes_are_full = self._has_full_index()
        self._bytes_since_index_entry = run.bytes_since_index_entry
        self.max_timestamp, self.offset_of_max_timestamp = run.max_timestamp, run.offset_of_max_timestamp

    def must_roll(self, size: int, last_offset: int, max_timestamp: int, now_ms: int, config: LogConfig) -> bool:
        """Whether a batch belongs into a new segment: by size, age, full indexes or the span of offsets."""
        if self.size + size > config.segment_bytes or last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
            return True
        if not self.size:
            return False
        first_timestamp = self._first_timestamp
        if first_timestamp is None or first_timestamp < 0:
            age_ms = self.age_ms(max_timestamp, now_ms)
        else:
            age_ms = max_timestamp - first_timestamp
        return age_ms > config.segment_ms - self.roll_jitter_ms or self._indexes_are_full

    def _has_full_index(self) -> bool:
        return (
            self.offset_index.entries.count >= self._index_size_max // OFFSET_ENTRY.size
            or self.time_index.entries.count >= self._index_size_max // TIME_ENTRY.size - 1
        )

    def age_ms(self, max_timestamp: int, now_ms: int) -> int:
        """By the timestamps of the records where they have any, else by the clock since the segment was made."""
        first_timestamp = self.first_timestamp()
        if first_timestamp is not None and first_timestamp >= 0:
            return max_timestamp - first_timestamp
        return now_ms - self.created_ms

    def first_timestamp(self) -> int | None:
        """The largest timestamp of the first batch, None in an empty segment."""
        if self._first_timestamp is None and self.size:
            for _, header in walk_headers(self.file(), 0, self.size):
                self._first_timestamp = header.max_timestamp
                break
        return self._first_timestamp

    def seal(self) -> None:
        """End of appending: the time index gets its last entry and the indexes are written out."""
        self.load_timestamps()
        if self.max_timestamp >= 0:
            self.time_index.append_if_later(self.max_timestamp, self.offset_of_max_timestamp)
        self.offset_index.entries.write_pending()
        self.time_index.entries.write_pending()

    # Reading

    def find(self, offset: int, start_position: int = 0, *, waits: bool = True) -> BatchPlace | None:
        """The batch that holds an offset, or the first one after it; None where all batches end before it.

        Without `waits` it raises `NotCached` where it would have to read from the disk. `MalformedMessage`: what is
        noted of the file does not end with a batch.
        """
        position = max(start_position, self.offset_index.position_at_or_before(offset, waits=waits))
        reads = (self._open_file or self.open_file()).reads(waits=waits)
        return find_batch(reads, position, self.size, offset, is_whole=True)

    def slice(self, position: int, size: int) -> FileSlice:
        self._is_used = True
        return FileSlice(self._open_file or self.open_file(), position, size)

    def headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        return walk_headers(self.file(), position, self.size)

    def next_offset(self) -> int:
        """The offset after the last batch, from the end of the file."""
        last_offset = self.base_offset - 1
        for place in walk_places(self.file(), self.offset_index.last_position(), self.size):
            last_offset = place.last_offset
        return last_offset + 1

    # Timestamps

    def load_timestamps(self) -> None:
        """Learn the largest timestamp from the end of the time index and the batches behind it."""
        if self._timestamps_loaded:
            return
        self._timestamps_loaded = True
        self.max_timestamp, self.offset_of_max_timestamp = self.time_index.last()
        position = self.offset_index.position_at_or_before(self.offset_of_max_timestamp)
        for _, header in walk_headers(self.file(), max(position, self.offset_index.last_position()), self.size):
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.offset_of_max_timestamp = header.max_timestamp, header.last_offset

    def largest_timestamp(self) -> int:
        """Of the records; of the file where the records have none."""
        self.load_timestamps()
        return self.max_timestamp if self.max_timestamp >= 0 else self._fs.modified_ms(self.path(LOG_SUFFIX))

    # Changing

    def truncate_to(self, offset: int, now_ms: int) -> int:
        """Drop the batch that holds an offset and everything after it; the new end."""
        place = self.find(offset)
        position = place.position if place else self.size
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        self.cut(position, now_ms)
        return min(offset, place.base_offset) if place else offset

    def cut(self, position: int, now_ms: int) -> None:
        """Cut the .log file; the indexes are the caller's."""
        if position < self.size:
            self.file().truncate(position)
            self.size = position
        if not position:
            self.created_ms = now_ms
            self._first_timestamp = None
        self._bytes_since_index_entry = 0
        self._timestamps_loaded = False
        self.load_timestamps()

    def has_sound_indexes(self) -> bool:
        """Whether offset and time index can be believed as far as a look at their ends tells."""
        return self.offset_index.is_sound() and self.time_index.is_sound()

    def has_sound_transaction_index(self) -> bool:
        try:
            self.transaction_index.entries()
        except CorruptTransactionIndex:
            return False
        return True

    def reset_indexes(self) -> None:
        """Empty offset and time index, to be filled again from the batches."""
        self.offset_index.entries.clear()
        self.time_index.entries.clear()
        self.max_timestamp, self.offset_of_max_timestamp = NO_TIMESTAMP, self.base_offset
        self._timestamps_loaded = True
        self._bytes_since_index_entry = 0

    def resume_indexes(self) -> None:
        """Go on filling indexes that end with the batch at the position of the last entry."""
        self.max_timestamp, self.offset_of_max_timestamp = self.time_index.last()
        self._timestamps_loaded = True
        self._bytes_since_index_entry = 0

    def files_to_sync(self) -> list[OpenFile | str]:
        """What a flush must make durable: the .log file, and the indexes that were written since the last one. The path
        where a file is not open.

        On a full disk the newest index entries stay in memory: an index that ends early is right all the same.
        """
        self.offset_index.entries.write_pending_if_possible()
        self.time_index.entries.write_pending_if_possible()
        files: list[OpenFile | str] = [self._open_file or self.path(LOG_SUFFIX)]
        for index in (self.offset_index.entries, self.time_index.entries, self.transaction_index):
            if index.is_unsynced:
                files.append(index.file_or_path)
                index.is_unsynced = False
        return files

    def begin_write_back(self) -> OpenFile:
        """The .log file, to be synced beside the loop. It makes nothing durable that a recovery point may count on."""
        self.write_back_at = self.size + WRITE_BACK_SIZE
        return self.open_file()

    def note_not_synced(self) -> None:
        """What a flush was to sync it did not come to."""
        for index in (self.offset_index.entries, self.time_index.entries, self.transaction_index):
            index.is_unsynced = True

    def existing_suffixes(self) -> list[str]:
        return [suffix for suffix in SEGMENT_SUFFIXES if self._fs.exists(self.path(suffix))]

    def release(self) -> None:
        """Give back descriptors and memory; the next use opens the files again."""
        self.offset_index.entries.release()
        self.time_index.entries.release()
        self.transaction_index.release()
        self._close_file()

    def close(self) -> None:
        """Let go of the files without writing anything."""
        self.offset_index.entries.close()
        self.time_index.entries.close()
        self.transaction_index.close()
        self._close_file()

    def _close_file(self) -> None:
        if self._open_file is not None:
            self._open_file = None
            self._fs.open_files.closed(self)


def roll_jitter_ms(directory: str, base_offset: int, config: LogConfig) -> int:
    """How much earlier than segment.ms a segment rolls, so that not all partitions roll at once.

    DIVERGES: drawn from the names instead of from a generator, so that a restart keeps it and a seed replays.
    """
    if config.segment_jitter_ms <= 0:
        return 0
    seed = base_offset
    for character in directory.rpartition("/")[2]:
        seed = (seed * 31 + ord(character)) & 0xFFFFFFFF
    return seed % min(config.segment_jitter_ms, config.segment_ms)
