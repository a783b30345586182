"""Reading stored bytes: from an offset to a place in a file."""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING

from protocol.errors import ErrorCode
from protocol.primitives import MalformedMessage
from storage.files.file_slice import FileSlice
from storage.segment.batch_scan import walk_places
from storage.segment.segment import Segment

if TYPE_CHECKING:
    from storage.log.log import Log

BOUNDARIES_KEPT = 16
_base_offset = attrgetter("base_offset")


class LogRead:
    """Stored bytes from the batch that holds an offset on; the last batch may be cut short, as in Kafka."""

    __slots__ = ("base_offset", "size", "slice")

    def __init__(self, place: FileSlice | None, base_offset: int) -> None:
        self.slice = place
        """None where there is nothing to read before the end that was given."""
        self.base_offset = base_offset
        """Of the segment that was read."""
        self.size = place.size if place is not None else 0


NOTHING = LogRead(None, -1)


class Boundaries:
    """Where batches of the active segment begin that were asked for lately: readers come back where they stopped."""

    __slots__ = ("_positions",)

    def __init__(self) -> None:
        self._positions: dict[int, int] = {}  # base offset -> position

    def get(self, offset: int) -> int | None:
        return self._positions.get(offset)

    def remember(self, offset: int, position: int) -> None:
        positions = self._positions
        if offset not in positions:
            if len(positions) >= BOUNDARIES_KEPT:
                del positions[next(iter(positions))]
            positions[offset] = position

    def clear(self) -> None:
        self._positions.clear()


def read(log: Log, offset: int, size_max: int, end_offset: int, at_least_one: bool, waits: bool) -> LogRead | ErrorCode:
    """Up to `size_max` bytes of batches from the one that holds an offset, of one segment, before `end_offset`.

    With `at_least_one` the first batch comes whole even where it is larger. OFFSET_OUT_OF_RANGE outside of the log,
    KAFKA_STORAGE_ERROR where the disk refuses (the log failed, but for a lack of descriptors) and where no batch is
    found in its place (the log is damaged). Without `waits` it raises `NotCached` where it would have to read from the
    disk.
    """
    try:
        return find(log, offset, size_max, end_offset, at_least_one, waits)
    except OSError as error:
        log.fail_unless_passing(error)
        return ErrorCode.KAFKA_STORAGE_ERROR
    except MalformedMessage as malformed:
        log.damaged(str(malformed))
        return ErrorCode.KAFKA_STORAGE_ERROR


def find(log: Log, offset: int, size_max: int, end_offset: int, at_least_one: bool, waits: bool) -> LogRead | ErrorCode:
    if not log.log_start_offset <= offset <= log.end_offset:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    if offset >= end_offset:
        return NOTHING
    segments = log.segments
    for slot in range(bisect_right(segments, offset, key=_base_offset) - 1, len(segments)):
        segment = segments[slot]
        if segment.base_offset >= end_offset:
            break
        position, first_size = position_of(log, segment, offset, waits)
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


def position_of(log: Log, segment: Segment, offset: int, waits: bool) -> tuple[int, int]:
    """(position, size) of the batch that holds an offset, or of the first after it; size 0 where it is not known."""
    if segment is not log.active:
        place = segment.find(offset, waits=waits)
        return (place.position, place.size) if place else (segment.size, 0)
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
    for place in walk_places(segment.open_file().reads(waits=waits), position, segment.size):
        return place.size
    return 0
