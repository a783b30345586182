"""Finding offsets by the timestamps of their records (ListOffsets).

The time index narrows the search to one index interval of one segment. The timestamps of single records are inside the
batches, so the last step decompresses one or two of those.
"""

from __future__ import annotations

from typing import NamedTuple

from moldau.protocol.record_batch import BatchHeader
from moldau.protocol.record_reader import records_of
from moldau.storage.log.log_state import LogState
from moldau.storage.segment.segment import Segment


class TimestampedOffset(NamedTuple):
    """The record that a lookup by timestamp found."""

    timestamp: int
    """The timestamp of the record, in ms."""
    offset: int
    leader_epoch: int
    """-1 where the batch has none."""


def offset_for_timestamp(log: LogState, timestamp: int) -> TimestampedOffset | None:
    """The first record at or after a timestamp (ms), None where there is none. Raises OSError and `MalformedMessage`,
    `RecordSizeExceeded` among them.

    DIVERGES: Apache Kafka finds no record where the first segment with a sufficient timestamp has no such record past
    the log start offset; it does not search later segments.
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
    """The first record of a segment at or after a timestamp and an offset."""
    indexed_offset = segment.time_index.at_or_before(timestamp)[1]
    position = segment.offset_index.position_at_or_before(max(indexed_offset, start_offset))
    for batch_position, header in segment.headers(position):
        if header.max_timestamp >= timestamp and header.last_offset >= start_offset:
            batch = read_batch(segment, batch_position, header)
            for record in records_of(batch, record_size_max=record_size_max):
                if record.timestamp >= timestamp and record.offset >= start_offset:
                    return TimestampedOffset(record.timestamp, record.offset, header.partition_leader_epoch)
    return None


def offset_of_max_timestamp(log: LogState) -> TimestampedOffset | None:
    """The first record with the largest timestamp of the log; None where no record has one.

    Raises OSError and `MalformedMessage`, `RecordSizeExceeded` among them.
    """
    for segment in log.segments:
        segment.load_timestamps()
    latest = max(log.segments, key=lambda segment: segment.max_timestamp)
    if latest.max_timestamp < 0:
        return None
    for position, header in latest.headers(latest.offset_index.position_at_or_before(latest.offset_of_max_timestamp)):
        if header.max_timestamp == latest.max_timestamp:
            batch = read_batch(latest, position, header)
            for record in records_of(batch, record_size_max=log.config.expanded_record_bytes_max):
                if record.timestamp == header.max_timestamp:
                    return TimestampedOffset(record.timestamp, record.offset, header.partition_leader_epoch)
    return None


def read_batch(segment: Segment, position: int, header: BatchHeader) -> bytes:
    """The whole batch, header included. Raises OSError."""
    return segment.file().pread(header.size, position)
