"""Finding offsets by the time of their records."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from protocol.record_batch import BatchHeader
from protocol.record_reader import records_of
from storage.segment.segment import Segment

if TYPE_CHECKING:
    from storage.log.log import Log


class TimestampedOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int
    """-1 where the batch has none."""


def offset_for_timestamp(log: Log, timestamp: int) -> TimestampedOffset | None:
    """The first record at or past a timestamp. May expand a batch or two. Raises OSError and `MalformedMessage`.

    DIVERGES: Kafka gives up where the first segment that is late enough has no such record past the log start.
    """
    for segment in log.segments:
        if segment.largest_timestamp() >= timestamp:
            found = find_in_segment(segment, timestamp, log.log_start_offset)
            if found is not None:
                return found
    return None


def find_in_segment(segment: Segment, timestamp: int, start_offset: int) -> TimestampedOffset | None:
    indexed_offset = segment.time_index.at_or_before(timestamp)[1]
    position = segment.offset_index.position_at_or_before(max(indexed_offset, start_offset))
    for batch_position, header in segment.headers(position):
        if header.max_timestamp >= timestamp and header.last_offset >= start_offset:
            for record in records_of(read_batch(segment, batch_position, header)):
                if record.timestamp >= timestamp and record.offset >= start_offset:
                    return TimestampedOffset(record.timestamp, record.offset, header.partition_leader_epoch)
    return None


def offset_of_max_timestamp(log: Log) -> TimestampedOffset | None:
    """The first record with the largest timestamp; None where no record has one. Raises as the other."""
    for segment in log.segments:
        segment.load_timestamps()
    latest = max(log.segments, key=lambda segment: segment.max_timestamp)
    if latest.max_timestamp < 0:
        return None
    for position, header in latest.headers(latest.offset_index.position_at_or_before(latest.offset_of_max_timestamp)):
        if header.max_timestamp == latest.max_timestamp:
            for record in records_of(read_batch(latest, position, header)):
                if record.timestamp == header.max_timestamp:
                    return TimestampedOffset(record.timestamp, record.offset, header.partition_leader_epoch)
    return None


def read_batch(segment: Segment, position: int, header: BatchHeader) -> bytes:
    return segment.file().pread(header.size, position)
