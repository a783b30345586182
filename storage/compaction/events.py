"""What a cleaning tells its driver while it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from storage.log.segment_swap import SegmentCleaned


class Moved(NamedTuple):
    """Bytes that were read and written since the last event: the driver slows the cleaning down by them."""

    bytes_read: int
    bytes_written: int


@dataclass(slots=True)
class CleaningStatistics:
    """What one round did; the names are those of Kafka's cleaner."""

    map_bytes_read: int = 0
    map_messages_read: int = 0
    bytes_read: int = 0
    messages_read: int = 0
    bytes_written: int = 0
    messages_written: int = 0
    invalid_messages_read: int = 0
    """Records without a key: they are dropped."""
    buffer_utilization: float = 0.0
    """The share of the offset map in use."""


class CleaningDone(NamedTuple):
    """The last event: everything before `next_dirty_offset` is clean once the cleaned segments are swapped."""

    next_dirty_offset: int
    statistics: CleaningStatistics


CleaningEvent: TypeAlias = Moved | SegmentCleaned | CleaningDone


class LogChanged(Exception):
    """A segment is not any more what the request says: the log was truncated, deleted, or moved on by retention.

    Not an error of the log: the driver throws the output away.
    """
