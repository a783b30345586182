"""Reading: finds the position of an offset in a .log file, the aborted transactions of a read, and the offset for a
timestamp.

    offset -> segment (bisect) -> position at or before it (offset index) -> batch that holds it (walk over headers)

A reader at the end of the log skips the last two steps: `RecentBatchPositions` has the position of the batch at which
its last read ended. The caller reads or sends the bytes. A read_committed consumer skips the records of the aborted
transactions.

For a lookup by time (ListOffsets) the time index narrows the search to one index interval of one segment. The
timestamps of single records are inside the batches, so the last step decompresses one or two batches.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from typing import Final, NamedTuple

from moldau.protocol.errors import ErrorCode
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_batch import BatchHeader
from moldau.protocol.record_reader import records_of
from moldau.storage.files.file_slice import FileSlice
from moldau.storage.log.log_state import LogState
from moldau.storage.segment.batch_scan import iterate_batch_places
from moldau.storage.segment.segment import Segment
from moldau.storage.segment.transaction_index import AbortedTransaction

UNFILTERED_ABORTED_MAX: Final = 16
"""The number of aborted transactions up to which the list is not filtered; it may then include transactions that begin
past the end of the read.
"""
_base_offset = attrgetter("base_offset")
_first_offset = attrgetter("first_offset")


class LogRead:
    """The part of a .log file that a read returns. It begins with the batch that contains the requested offset. The
    last batch may be cut short, as in Kafka."""

    __slots__ = ("base_offset", "size", "slice")

    def __init__(self, place: FileSlice | None, base_offset: int) -> None:
        self.slice = place
        """The part of the file; None if there is nothing to read."""
        self.base_offset = base_offset
        """The base offset of the segment that was read; -1 if there is nothing to read."""
        self.size = place.size if place is not None else 0


EMPTY_READ = LogRead(None, -1)


def read(
    log: LogState, offset: int, size_max: int, end_offset: int, at_least_one: bool, waits: bool
) -> LogRead | ErrorCode:
    """Find, without reading it, the part of one .log file that answers a read from `offset`. It begins with the batch
    that contains `offset`, ends before the batch that contains `end_offset`, and has up to `size_max` bytes. With
    `at_least_one` it has the first batch whole, even if that is larger.

    Returns OFFSET_OUT_OF_RANGE if the offset is outside of the log, and OFFSET_MOVED_TO_TIERED_STORAGE if it is before
    the first local segment. Returns KAFKA_STORAGE_ERROR if the disk fails, after which the log has failed (except for a
    lack of file descriptors), or if no batch begins at a position at which one must begin, after which the log is
    damaged. Without `waits` it raises `NotCached` if the lookup would have to wait for the disk.
    """
    try:
        return locate_batches(log, offset, size_max, end_offset, at_least_one, waits)
    except OSError as error:
        log.fail_unless_transient(error)
        return ErrorCode.KAFKA_STORAGE_ERROR
    except MalformedMessage as malformed:
        log.mark_damaged(str(malformed))
        return ErrorCode.KAFKA_STORAGE_ERROR


def locate_batches(
    log: LogState, offset: int, size_max: int, end_offset: int, at_least_one: bool, waits: bool
) -> LogRead | ErrorCode:
    if not log.log_start_offset <= offset <= log.end_offset:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    if offset >= end_offset:
        return EMPTY_READ
    segments = log.segments
    # More than one pass only if a segment has no batch at or past the offset: compaction removed it.
    first_slot = bisect_right(segments, offset, key=_base_offset) - 1
    if first_slot < 0:
        is_tiered = log.config.is_tiered
        return ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE if is_tiered else ErrorCode.OFFSET_OUT_OF_RANGE
    for slot in range(first_slot, len(segments)):
        segment = segments[slot]
        if segment.base_offset >= end_offset:
            break
        position, first_size = position_of(log, segment, offset, waits)
        # The whole segment may be read if the next segment begins at or before `end_offset`; that saves a lookup.
        if slot + 1 < len(segments) and segments[slot + 1].base_offset <= end_offset:
            end_position = segment.size
        else:
            end_position = position_of(log, segment, end_offset, waits)[0]
        if position < end_position:
            size = min(size_max, end_position - position)
            if at_least_one and size < end_position - position:
                size = max(size, first_size or batch_size_at(segment, position, waits))
            return LogRead(segment.slice(position, size), segment.base_offset)
    return EMPTY_READ


def position_of(log: LogState, segment: Segment, offset: int, waits: bool) -> tuple[int, int]:
    """The position and the size (bytes) of the batch that contains `offset`, or of the first batch after it. The size
    is 0 if it is not known.

    Only positions in the active segment are remembered (`RecentBatchPositions`): rolled segments are read from one end
    to the other, once.
    """
    if segment is not log.active:
        place = segment.find_batch(offset, waits=waits)
        return (place.position, place.size) if place else (segment.size, 0)
    # A caught-up reader asks for the log end offset; the next batch will begin at the current end of the file.
    if offset >= log.end_offset:
        log.boundaries.remember(log.end_offset, segment.size)
        return segment.size, 0
    known = log.boundaries.get(offset)
    if known is not None:
        return known, 0
    place = segment.find_batch(offset, waits=waits)
    if place is None:
        return segment.size, 0
    if place.base_offset == offset:
        log.boundaries.remember(offset, place.position)
    return place.position, place.size


def batch_size_at(segment: Segment, position: int, waits: bool) -> int:
    """The size in bytes of the batch at a position; 0 if no whole batch begins there."""
    for place in iterate_batch_places(segment.open_file().readable(waits=waits), position, segment.size):
        return place.size
    return 0


def aborted_transactions(log: LogState, first_offset: int, end_offset: int) -> list[AbortedTransaction]:
    """The aborted transactions with batches in [first_offset, end_offset).

    Raises OSError, and its subclass `CorruptTransactionIndex`.
    """
    found: list[AbortedTransaction] = []
    slot = max(0, bisect_right(log.segments, first_offset, key=_base_offset) - 1)
    for segment in log.segments[slot:]:
        more, is_complete = segment.transaction_index.overlapping_transactions(first_offset, end_offset)
        found += more
        if is_complete:
            break
    return found


def aborted_in_read(
    log: LogState, read: LogRead, first_offset: int, end_offset: int, *, waits: bool
) -> list[AbortedTransaction]:
    """The aborted transactions that may overlap the result of a read from `first_offset` on, sorted by first offset.

    The transaction index has the order of the markers, but some clients take the list in the order of the records.
    Raises OSError, and its subclass `CorruptTransactionIndex`; without `waits` also `NotCached`.
    """
    segments = log.segments
    slot = bisect_right(segments, read.base_offset, key=_base_offset) - 1
    if slot + 1 < len(segments):
        end_offset = min(end_offset, segments[slot + 1].base_offset)
    segment = segments[slot]
    if read.slice is not None and segment.transaction_index.count_markers_from(first_offset) > UNFILTERED_ABORTED_MAX:
        end_offset = min(end_offset, read_end_offset(segment, read.slice.position + read.size, end_offset, waits))
    found = aborted_transactions(log, first_offset, end_offset)
    found.sort(key=_first_offset)
    return found


def read_end_offset(segment: Segment, end_position: int, otherwise: int, waits: bool) -> int:
    """Return an upper bound of the end offset of the batches before `end_position`: the closest one in the offset
    index, or `otherwise` if the index has none.
    """
    later = segment.offset_index.offset_after(end_position - 1, waits=waits)
    return otherwise if later is None else later


class TimestampedOffset(NamedTuple):
    """The record that a lookup by timestamp found."""

    timestamp: int
    """The timestamp of the record, in ms."""
    offset: int
    leader_epoch: int
    """The leader epoch of the record's batch; -1 if the batch has none."""


def offset_for_timestamp(log: LogState, timestamp: int) -> TimestampedOffset | None:
    """The first record whose timestamp is at or after `timestamp` (ms); None if there is none. Raises OSError,
    `MalformedMessage`, and its subclass `RecordSizeExceeded`.

    DIVERGES: Apache Kafka finds no record if the first segment with a sufficient timestamp has no such record past the
    log start offset; it does not search later segments.
    """
    for segment in log.segments:
        if segment.largest_timestamp() >= timestamp:
            size_max = log.config.expanded_record_bytes_max
            found = find_in_segment(segment, timestamp, log.log_start_offset, size_max)
            if found is not None:
                return found
    return None


def find_in_segment(
    segment: Segment, timestamp: int, start_offset: int, record_size_max: int
) -> TimestampedOffset | None:
    """The first record of a segment whose timestamp is at or after `timestamp` (ms) and whose offset is at or past
    `start_offset`; None if there is none."""
    indexed_offset = segment.time_index.entry_at_or_before(timestamp)[1]
    position = segment.start_position(max(indexed_offset, start_offset))
    for batch_position, header in segment.headers(position):
        if header.max_timestamp >= timestamp and header.last_offset >= start_offset:
            batch = read_batch(segment, batch_position, header)
            for record in records_of(batch, record_size_max=record_size_max):
                if record.timestamp >= timestamp and record.offset >= start_offset:
                    return TimestampedOffset(record.timestamp, record.offset, header.partition_leader_epoch)
    return None


def offset_of_max_timestamp(log: LogState) -> TimestampedOffset | None:
    """The first record with the largest timestamp of the log; None if no record has a timestamp.

    Raises OSError, `MalformedMessage`, and its subclass `RecordSizeExceeded`.
    """
    for segment in log.segments:
        segment.load_timestamps()
    latest = max(log.segments, key=lambda segment: segment.max_timestamp)
    if latest.max_timestamp < 0:
        return None
    for position, header in latest.headers(latest.start_position(latest.offset_of_max_timestamp)):
        if header.max_timestamp == latest.max_timestamp:
            batch = read_batch(latest, position, header)
            for record in records_of(batch, record_size_max=log.config.expanded_record_bytes_max):
                if record.timestamp == header.max_timestamp:
                    return TimestampedOffset(record.timestamp, record.offset, header.partition_leader_epoch)
    return None


def read_batch(segment: Segment, position: int, header: BatchHeader) -> bytes:
    """Read a whole batch, header included. Raises OSError."""
    return segment.file().pread(header.size, position)
