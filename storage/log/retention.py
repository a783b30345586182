"""Retention: the number of oldest segments that a log may delete, by log start offset, size and time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from moldau.storage.log_config import LogConfig
from moldau.storage.segment.segment import Segment

IsDue = Callable[[Segment, int], bool]
"""Whether a segment may be deleted; called with the segment and the offset where the next one begins."""


def deletable_count(
    segments: Sequence[Segment],
    config: LogConfig,
    *,
    log_start_offset: int,
    end_offset: int,
    high_watermark: int,
    now_ms: int,
    tiered_end_offset: int = 0,
) -> int:
    """The number of segments that may be deleted, counted from the oldest.

    Of a tiered log whose segments are copied, only local retention deletes, and only segments whose copies are
    finished: everything before `tiered_end_offset` is in remote storage. A segment with an offset at or past the high
    watermark stays, because a follower may not have it yet. The active segment counts where all of it is committed; the
    owner then rolls first. Raises OSError: timestamps are read from the files.
    """
    starts = [segment.base_offset for segment in segments[1:]]
    replicated_count = sum(start <= high_watermark for start in starts)
    if config.is_tiered and not config.remote_log_copy_disable:
        replicated = starts[:replicated_count]
        return _deletable_tiered(segments, config, replicated, log_start_offset, tiered_end_offset, now_ms)
    if len(starts) == replicated_count and end_offset <= high_watermark and segments[-1].size:
        starts.append(end_offset)
        replicated_count += 1
    count = 0
    for is_due in due_by(segments, config, log_start_offset, now_ms):
        while count < replicated_count and is_due(segments[count], starts[count]):
            count += 1
    return count


def _deletable_tiered(
    segments: Sequence[Segment],
    config: LogConfig,
    starts: Sequence[int],
    log_start_offset: int,
    tiered_end_offset: int,
    now_ms: int,
) -> int:
    """Whether a segment of a tiered log may be deleted.

    The active segment is never copied, and stays. A segment before the log start offset may be deleted without a copy.
    """
    excess_size = sum(segment.size for segment in segments) - config.local_retention_bytes
    has_size, has_time = config.local_retention_bytes >= 0, config.local_retention_ms >= 0
    count = 0
    for segment, next_start in zip(segments, starts, strict=False):
        is_hidden = next_start <= log_start_offset
        is_due = (has_size and excess_size >= segment.size) or (
            has_time and now_ms - segment.largest_timestamp() > config.local_retention_ms
        )
        if not is_hidden and not (is_due and next_start <= tiered_end_offset):
            break
        excess_size -= segment.size
        count += 1
    return count


def due_by(segments: Sequence[Segment], config: LogConfig, log_start_offset: int, now_ms: int) -> list[IsDue]:
    """The number of oldest segments that the rules allow to delete.

    Kafka's order applies: each rule continues at the segment at which the rule before it stopped.
    """
    last = segments[-1]
    rules: list[IsDue] = [lambda segment, next_start: segment is not last and next_start <= log_start_offset]
    if config.is_deleted_by_retention:
        if config.retention_bytes >= 0:
            rules.append(size_rule(segments, config.retention_bytes, log_start_offset))
        if config.retention_ms >= 0:
            rules.append(lambda segment, _: now_ms - segment.largest_timestamp() > config.retention_ms)
    return rules


def size_rule(segments: Sequence[Segment], retention_bytes: int, log_start_offset: int) -> IsDue:
    """The rule of retention.bytes: a segment may be deleted while the log without it is still at least that large.
    Segments before the log start offset do not count: the rule before this one has deleted them."""
    hidden_count = sum(later.base_offset <= log_start_offset for later in segments[1:])
    excess_size = sum(segment.size for segment in segments[hidden_count:]) - retention_bytes

    def is_due(segment: Segment, _: int) -> bool:
        nonlocal excess_size
        if excess_size < segment.size:
            return False
        excess_size -= segment.size
        return True

    return is_due
