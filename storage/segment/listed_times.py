"""Looks up records by timestamp in the segments of a log that another process writes. It changes no file.

As in `moldau.storage.log.timestamp_lookup`: the time index narrows the search to one index interval, and one or two
batches are decompressed.
"""

from __future__ import annotations

from moldau.protocol.record_reader import records_of
from moldau.storage.files.log_paths import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX
from moldau.storage.files.port import FileSystem
from moldau.storage.segment.batch_scan import walk_headers
from moldau.storage.segment.offset_index import OffsetIndex
from moldau.storage.segment.segment_listing import ListedSegment
from moldau.storage.segment.time_index import NO_TIMESTAMP, TimeIndex


def largest_timestamp(fs: FileSystem, segment: ListedSegment) -> int | None:
    """The largest timestamp (ms) of a segment that is not written any more; None where no index says it.

    Raises OSError.
    """
    if segment.next_base_offset is None:
        return None
    index = time_index_of(fs, segment)
    timestamp = index.last()[0] if index else NO_TIMESTAMP
    return timestamp if timestamp > NO_TIMESTAMP else None


def first_offset_at(
    fs: FileSystem, segment: ListedSegment, timestamp: int, start_offset: int, end_offset: int
) -> int | None:
    """The first record of a segment at or after a timestamp (ms) and with an offset in [start, end); None where none
    is. Raises OSError and `MalformedMessage`."""
    latest = largest_timestamp(fs, segment)
    if latest is not None and latest < timestamp:
        return None
    index = time_index_of(fs, segment)
    indexed_offset = index.at_or_before(timestamp)[1] if index else segment.base_offset
    path = segment.path(OFFSET_INDEX_SUFFIX)
    offsets = OffsetIndex(fs, path, segment.base_offset, read_only=True) if fs.exists(path) else None
    position = offsets.position_at_or_before(max(indexed_offset, start_offset)) if offsets else 0
    file = fs.open(segment.path(), read_only=True)
    try:
        for batch_position, header in walk_headers(file, position, segment.size):
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
    """The time index of a segment, None where it has no file."""
    path = segment.path(TIME_INDEX_SUFFIX)
    return TimeIndex(fs, path, segment.base_offset, read_only=True) if fs.exists(path) else None
