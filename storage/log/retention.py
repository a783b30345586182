"""Which of the oldest segments a log may give up: by offset, by size, by time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from storage.log.log_config import LogConfig
from storage.segment.segment import Segment

IsDue = Callable[[Segment, int], bool]
"""Asked with a segment and the offset where the next one begins."""


def deletable_count(
    segments: Sequence[Segment],
    config: LogConfig,
    *,
    log_start_offset: int,
    end_offset: int,
    high_watermark: int,
    now_ms: int,
) -> int:
    """How many segments go, counted from the oldest. Never one with anything at or past the high watermark."""
    starts = [segment.base_offset for segment in segments[1:]]
    replicated_count = sum(start <= high_watermark for start in starts)
    if len(starts) == replicated_count and end_offset <= high_watermark and segments[-1].size:
        starts.append(end_offset)
        replicated_count += 1
    count = 0
    for is_due in due_by(segments, config, log_start_offset, now_ms):
        while count < replicated_count and is_due(segments[count], starts[count]):
            count += 1
    return count


def due_by(segments: Sequence[Segment], config: LogConfig, log_start_offset: int, now_ms: int) -> list[IsDue]:
    """The rules in Kafka's order; each goes on where the one before it stopped."""
    last = segments[-1]
    rules: list[IsDue] = [lambda segment, next_start: segment is not last and next_start <= log_start_offset]
    if config.is_deleted_by_retention:
        if config.retention_bytes >= 0:
            rules.append(size_rule(segments, config.retention_bytes, log_start_offset))
        if config.retention_ms >= 0:
            rules.append(lambda segment, _: now_ms - segment.largest_timestamp() > config.retention_ms)
    return rules


def size_rule(segments: Sequence[Segment], retention_bytes: int, log_start_offset: int) -> IsDue:
    """A segment goes while the log without it still holds what is to be retained."""
    hidden_count = sum(later.base_offset <= log_start_offset for later in segments[1:])
    excess_size = sum(segment.size for segment in segments[hidden_count:]) - retention_bytes

    def is_due(segment: Segment, _: int) -> bool:
        nonlocal excess_size
        if excess_size < segment.size:
            return False
        excess_size -= segment.size
        return True

    return is_due
