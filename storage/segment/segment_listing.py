"""Reading the segments of a partition's directory from another process (Spark), while a broker may be writing them.

Nothing is locked and nothing is written. An index may be some entries behind its log, so that the reader scans more
headers. The last batch may be half written. Retention or compaction may replace or delete a segment: the caller handles
`FileNotFoundError`, and compares the stamp of the file that it opens with the listed one.

A lookup by time works as in `moldau.storage.log.reading`: the time index narrows it to one index interval, and one or
two batches are decompressed.
"""

from __future__ import annotations

import errno
from typing import NamedTuple

from moldau.protocol.record_reader import records_of
from moldau.storage.files.log_paths import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    begins_with_offset,
    offset_name,
    offset_of_name,
)
from moldau.storage.files.open_files import OpenFile
from moldau.storage.files.port import FileStamp, FileSystem
from moldau.storage.segment.batch_scan import BatchPlace, find_batch, iterate_batch_headers
from moldau.storage.segment.sparse_index import NO_TIMESTAMP, OffsetIndex, TimeIndex

LISTINGS_MAX = 1000
"""The most times that `list_segments` lists a directory before it gives up.

A swap lasts for some listings. A swap that a crash interrupted lasts until the broker starts again.
"""


class ListedSegment(NamedTuple):
    """One .log file as it was when the directory was listed."""

    directory: str
    base_offset: int
    size: int
    next_base_offset: int | None
    """The base offset of the next segment; None for the last segment, to which a broker may be appending."""
    stamp: FileStamp | None = None

    def path(self, suffix: str = LOG_SUFFIX) -> str:
        return f"{self.directory}/{offset_name(self.base_offset, suffix)}"


class PositionRange(NamedTuple):
    """A range of whole batches in a .log file: [start, end)."""

    start_position: int
    end_position: int


def list_segments(fs: FileSystem, directory: str) -> list[ListedSegment]:
    """Return the segments in a partition's directory, in the order of their offsets, without files that are being
    deleted or cleaned.

    While compaction swaps a segment, the replaced segments are gone and the new one does not have its final name yet.
    So the directory is listed again until no swap is under way, and nothing has changed since the previous listing.
    Raises OSError, with EAGAIN if the directory keeps changing.
    """
    names = log_names(fs, directory)
    for _ in range(LISTINGS_MAX):
        names_before, offsets = names, [offset_of_name(name) for name in names]
        try:
            stamps = [fs.stamp(f"{directory}/{offset_name(offset, LOG_SUFFIX)}") for offset in offsets]
        except FileNotFoundError:
            stamps = None
        names = log_names(fs, directory)
        if stamps is None or names != names_before or any(name.endswith(SWAP_SUFFIX) for name in names):
            continue
        following: list[int | None] = [*offsets[1:], None]
        return [
            ListedSegment(directory, offset, stamp.size, end_offset, stamp)
            for offset, stamp, end_offset in zip(offsets, stamps, following, strict=True)
        ]
    raise OSError(errno.EAGAIN, "a compaction is swapping its segments", directory)


def log_names(fs: FileSystem, directory: str) -> list[str]:
    """The names of the .log files in a directory, also those that a swap has not renamed to their final name yet.
    Raises OSError."""
    names = fs.list_directory(directory)
    return [name for name in names if name.endswith((LOG_SUFFIX, SWAP_SUFFIX)) and begins_with_offset(name)]


def offset_index_of(fs: FileSystem, segment: ListedSegment) -> OffsetIndex | None:
    """The offset index of a segment; None if the segment has no index file."""
    path = segment.path(OFFSET_INDEX_SUFFIX)
    return OffsetIndex(fs, path, segment.base_offset, read_only=True) if fs.exists(path) else None


def locate_batch(fs: FileSystem, segment: ListedSegment, offset: int) -> BatchPlace | None:
    """Return the batch that contains `offset`, or the first one after it. Return None if all whole batches end before
    `offset`."""
    index = offset_index_of(fs, segment)
    position = index.position_at_or_before(offset) if index else 0
    opened = OpenFile(fs.open(segment.path(), read_only=True))
    return find_batch(opened.file, position, segment.size, offset)


def split_range(fs: FileSystem, segment: ListedSegment, ranges: PositionRange, slice_size: int) -> list[PositionRange]:
    """Cut a range of whole batches into slices of about `slice_size` bytes. The cuts are at index entries, so no batch
    is read.

    Every slice but the last has at least `slice_size` bytes, and exceeds them by at most one index interval or one
    batch.
    """
    index = offset_index_of(fs, segment)
    cuts = [ranges.start_position]
    while index is not None:
        following = index.position_past(cuts[-1] + slice_size - 1)
        if following is None or following >= ranges.end_position:
            break
        cuts.append(following)
    return [PositionRange(start, end) for start, end in zip(cuts, [*cuts[1:], ranges.end_position], strict=True)]


def largest_timestamp(fs: FileSystem, segment: ListedSegment) -> int | None:
    """The largest timestamp (ms) of a segment, from its time index. None for the last segment, which may still be
    written, and if the index has no entry.

    Raises OSError.
    """
    if segment.next_base_offset is None:
        return None
    index = time_index_of(fs, segment)
    timestamp = index.last_entry()[0] if index else NO_TIMESTAMP
    return timestamp if timestamp > NO_TIMESTAMP else None


def first_offset_at(
    fs: FileSystem, segment: ListedSegment, timestamp: int, start_offset: int, end_offset: int
) -> int | None:
    """Return the offset of the first record of a segment whose timestamp is at or after `timestamp` (ms) and whose
    offset is in [start_offset, end_offset). Return None if there is no such record. Raises OSError and
    `MalformedMessage`."""
    latest = largest_timestamp(fs, segment)
    if latest is not None and latest < timestamp:
        return None
    index = time_index_of(fs, segment)
    indexed_offset = index.entry_at_or_before(timestamp)[1] if index else segment.base_offset
    path = segment.path(OFFSET_INDEX_SUFFIX)
    offsets = OffsetIndex(fs, path, segment.base_offset, read_only=True) if fs.exists(path) else None
    position = offsets.position_at_or_before(max(indexed_offset, start_offset)) if offsets else 0
    file = fs.open(segment.path(), read_only=True)
    try:
        for batch_position, header in iterate_batch_headers(file, position, segment.size):
            if header.base_offset >= end_offset:
                return None
            if header.max_timestamp < timestamp or header.last_offset < start_offset:
                continue
            for record in records_of(file.pread(header.size, batch_position)):
                if record.timestamp >= timestamp and record.offset >= start_offset:
                    return record.offset if record.offset < end_offset else None
        return None
    finally:
        file.close()


def time_index_of(fs: FileSystem, segment: ListedSegment) -> TimeIndex | None:
    """The time index of a segment; None if the segment has no index file."""
    path = segment.path(TIME_INDEX_SUFFIX)
    return TimeIndex(fs, path, segment.base_offset, read_only=True) if fs.exists(path) else None
