"""Reading: finds the place of an offset in a .log file. The caller reads or sends the bytes.

    offset -> segment (bisect) -> position at or before it (offset index) -> batch that holds it (walk over headers)

A reader at the tail skips the last two steps: `Boundaries` has the position of the batch at which its last read ended.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter

from moldau.protocol.errors import ErrorCode
from moldau.protocol.primitives import MalformedMessage
from moldau.storage.files.file_slice import FileSlice
from moldau.storage.log.log_state import LogState
from moldau.storage.segment.batch_scan import walk_places
from moldau.storage.segment.segment import Segment

_base_offset = attrgetter("base_offset")


class LogRead:
    """A place in a segment, from the batch that holds an offset on. The last batch may be cut short, as in Kafka."""

    __slots__ = ("base_offset", "size", "slice")

    def __init__(self, place: FileSlice | None, base_offset: int) -> None:
        self.slice = place
        """None where there is nothing to read before `end_offset`."""
        self.base_offset = base_offset
        """The base offset of the segment that was read; -1 where there is nothing to read."""
        self.size = place.size if place is not None else 0


NOTHING = LogRead(None, -1)


def read(
    log: LogState, offset: int, size_max: int, end_offset: int, at_least_one: bool, waits: bool
) -> LogRead | ErrorCode:
    """Up to `size_max` bytes of one segment, from the batch that holds an offset, before `end_offset`.

    With `at_least_one` the first batch comes whole even where it is larger.

    OFFSET_OUT_OF_RANGE outside of the log. OFFSET_MOVED_TO_TIERED_STORAGE before its first local segment.
    KAFKA_STORAGE_ERROR where the disk fails (the log has failed then, except for a lack of file descriptors) and where
    no batch begins at a position where one must begin (the log is damaged). Without `waits` it raises `NotCached` where
    the lookup would have to wait for the disk.
    """
    try:
        return find(log, offset, size_max, end_offset, at_least_one, waits)
    except OSError as error:
        log.fail_unless_passing(error)
        return ErrorCode.KAFKA_STORAGE_ERROR
    except MalformedMessage as malformed:
        log.damaged(str(malformed))
        return ErrorCode.KAFKA_STORAGE_ERROR


def find(
    log: LogState, offset: int, size_max: int, end_offset: int, at_least_one: bool, waits: bool
) -> LogRead | ErrorCode:
    if not log.log_start_offset <= offset <= log.end_offset:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    if offset >= end_offset:
        return NOTHING
    segments = log.segments
    # More than one pass only where a segment has no batch at or past the offset: compaction removed it.
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
    return NOTHING


def position_of(log: LogState, segment: Segment, offset: int, waits: bool) -> tuple[int, int]:
    """(position, size) of the batch that holds an offset, or of the first one after it; size 0 where it is not known.

    Only the active segment has boundaries remembered: rolled segments are read from one end to the other, once.
    """
    if segment is not log.active:
        place = segment.find(offset, waits=waits)
        return (place.position, place.size) if place else (segment.size, 0)
    # A caught-up reader asks for the log end offset; the next batch will begin at the current end of the file.
    if offset >= log.end_offset:
        log.boundaries.remember(log.end_offset, segment.size)
        return segment.size, 0
    known = log.boundaries.get(offset)
    if known is not None:
        return known, 0
    place = segment.find(offset, waits=waits)
    if place is None:
        return segment.size, 0
    if place.base_offset == offset:
        log.boundaries.remember(offset, place.position)
    return place.position, place.size


def batch_size_at(segment: Segment, position: int, waits: bool) -> int:
    """The size in bytes of the batch at a position, 0 where no whole batch lies there."""
    for place in walk_places(segment.open_file().reads(waits=waits), position, segment.size):
        return place.size
    return 0
