"""The events of a cleaning for its driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from moldau.storage.log.segment_swap import SegmentCleaned


class Moved(NamedTuple):
    """Bytes that were read and written since the last event. The driver uses them to throttle the cleaning."""

    bytes_read: int
    bytes_written: int


@dataclass(slots=True)
class CleaningStatistics:
    """The counts of one round; the names are those of Kafka's cleaner."""

    map_bytes_read: int = 0
    map_messages_read: int = 0
    bytes_read: int = 0
    messages_read: int = 0
    bytes_written: int = 0
    messages_written: int = 0
    invalid_messages_read: int = 0
    """Records without a key, which compaction removes."""
    buffer_utilization: float = 0.0
    """The share of the offset map in use, 0 to 1."""


class CleaningDone(NamedTuple):
    """The last event: everything before `next_dirty_offset` is clean once the cleaned segments are swapped."""

    next_dirty_offset: int
    statistics: CleaningStatistics


CleaningEvent: TypeAlias = Moved | SegmentCleaned | CleaningDone


class LogChanged(Exception):
    """A segment is no longer as the request describes it: the log was truncated or deleted, or retention removed it.

    The log is not damaged. The driver discards the cleaned segment.
    """
