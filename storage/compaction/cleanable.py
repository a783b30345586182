"""What the cleaner may clean of a log, and which log it cleans next.

    log start         first dirty offset      first uncleanable offset       log end
        |---- clean ----------|---- cleanable ----------|---- not yet ---------|

The clean part has at most one record of each key. The cleanable part ends where a segment begins: at the active
segment, at the segment with the last stable offset, or at the first dirty segment with a record younger than
min.compaction.lag.ms, whichever is first.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple, TypeVar

from moldau.storage.log.log_state import LogState
from moldau.storage.log_config import INT64_MAX
from moldau.storage.segment.segment import Segment

_base_offset = attrgetter("base_offset")
Name = TypeVar("Name")


class CleanablePart(NamedTuple):
    """The clean part and the cleanable part of one log at one time."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    """The base offset of the first segment that is not cleaned; never below `first_dirty_offset`, unless that lies
    within this segment."""
    clean_bytes: int
    """Bytes of the segments that begin before the first dirty offset."""
    cleanable_bytes: int
    """Bytes of the segments from the one with the first dirty offset to the last cleanable one."""
    overdue_ms: int
    """For how long the oldest dirty segment has been older than max.compaction.lag.ms; 0 where none is."""
    is_checkpoint_reset: bool
    """The checkpointed offset was outside of the log. The owner checkpoints `first_dirty_offset` instead."""
    truncation_count: int = 0
    """The truncation count of the log at that time: after a truncation these offsets are meaningless."""

    @property
    def total_bytes(self) -> int:
        return self.clean_bytes + self.cleanable_bytes

    @property
    def dirty_ratio(self) -> float:
        """The cleanable bytes divided by the clean and the cleanable bytes; 0 where there are neither."""
        return self.cleanable_bytes / self.total_bytes if self.total_bytes else 0.0

    def is_wanted(self, min_dirty_ratio: float) -> bool:
        """Whether the log is dirty enough to be cleaned, or has passed its max.compaction.lag.ms."""
        return (self.overdue_ms > 0 and self.cleanable_bytes > 0) or self.dirty_ratio > min_dirty_ratio


def cleanable_part(
    log: LogState, checkpointed_offset: int | None, last_stable_offset: int, now_ms: int
) -> CleanablePart:
    """The cleanable part of a log that was cleaned up to `checkpointed_offset` (exclusive; None: it never was).

    Reads the timestamps of dirty segments where a limit of the log's configuration asks for them. Raises OSError and
    `MalformedMessage`.
    """
    first_dirty = log.log_start_offset if checkpointed_offset is None else checkpointed_offset
    is_reset = not log.log_start_offset <= first_dirty <= log.end_offset
    if is_reset:
        first_dirty = log.log_start_offset
    dirty = dirty_segments(log, first_dirty)
    limit = min(last_stable_offset, log.active.base_offset, young_offset(log, dirty, now_ms))
    limit = max(limit, first_dirty)
    if limit <= log.active.base_offset:
        first_uncleanable = log.segments[bisect_right(log.segments, limit, key=_base_offset) - 1].base_offset
    else:
        first_uncleanable = log.active.base_offset
    clean_count = bisect_left(log.segments, first_dirty, key=_base_offset)
    cleanable = segments_between(log.segments, min(first_dirty, first_uncleanable), first_uncleanable)
    return CleanablePart(
        first_dirty,
        first_uncleanable,
        sum(segment.size for segment in log.segments[:clean_count]),
        sum(segment.size for segment in cleanable),
        overdue_ms(log, dirty, now_ms),
        is_reset,
        log.truncation_count,
    )


def segments_between(segments: list[Segment], start_offset: int, end_offset: int) -> list[Segment]:
    """The segments that begin before `end_offset`, from the one that holds `start_offset` on."""
    if start_offset >= end_offset:
        return []
    first = max(0, bisect_right(segments, start_offset, key=_base_offset) - 1)
    return segments[first : bisect_left(segments, end_offset, key=_base_offset)]


def dirty_segments(log: LogState, first_dirty_offset: int) -> list[Segment]:
    """The rolled segments with offsets that were not cleaned."""
    return segments_between(log.segments, first_dirty_offset, log.active.base_offset)


def young_offset(log: LogState, dirty: list[Segment], now_ms: int) -> int:
    """The base offset of the first dirty segment with a record younger than min.compaction.lag.ms; `INT64_MAX` where
    there is none."""
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        for segment in dirty:
            if segment.largest_timestamp() > now_ms - lag_ms:
                return segment.base_offset
    return INT64_MAX


def overdue_ms(log: LogState, dirty: list[Segment], now_ms: int) -> int:
    """By how much the oldest dirty segment exceeds max.compaction.lag.ms, by the timestamp of its first batch."""
    due_ms = now_ms - max(log.config.max_compaction_lag_ms, 0)
    if due_ms <= 0:
        return 0  # Without a limit no timestamp is read.
    timestamps = [timestamp for each in dirty if (timestamp := each.first_timestamp()) is not None and timestamp > 0]
    return max(0, due_ms - min(timestamps, default=due_ms))


def dirtiest(parts: Iterable[tuple[Name, CleanablePart, float]]) -> Name | None:
    """The name of the log to clean next: of the logs that are wanted, the one with the largest dirty ratio.

    `parts` are (name, part, min.cleanable.dirty.ratio). None where no log is wanted; of equal ratios the first counts.
    """
    wanted = [(name, part) for name, part, min_ratio in parts if part.total_bytes and part.is_wanted(min_ratio)]
    return max(wanted, key=lambda each: each[1].dirty_ratio)[0] if wanted else None
