"""The plan of a pass of cleaning over remote storage: the remote segments of a compacted log that the pass cleans, and
the sources that it reads (decision 14).

    cleaned end offset of a group          where the local log is clean
      E ------------- keys of this part ------------- D
               remote segments      |   local segments
                                local start

A group that was cleaned against everything below E is cleaned against the keys of [E, D). The local log has these keys,
or, if local retention has deleted them, other remote segments have them. A group whose whole range is local and clean
is copied from the local segments.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from moldau.storage.log.log_state import LogState
from moldau.storage.log.segment_swap import SegmentSize
from moldau.storage.log_config import INT64_MAX
from moldau.storage.tiered.metadata.cleaning_groups import cleaning_groups
from moldau.storage.tiered.metadata.leader_history import is_in_history
from moldau.storage.tiered.metadata.lineage import read_lineage
from moldau.storage.tiered.metadata.remote_log import RemoteLog
from moldau.storage.tiered.metadata.remote_segment import RemoteSegment


class PlannedPart(NamedTuple):
    """The batches of a segment that have an offset in [first_offset, end_offset)."""

    first_offset: int
    end_offset: int
    """The end of the range (exclusive)."""
    source: RemoteSegment | SegmentSize
    """The segment with the batches, remote or local."""


class PlannedGroup(NamedTuple):
    """Neighbouring remote segments that are cleaned into one."""

    segments: tuple[RemoteSegment, ...]
    parts: tuple[PlannedPart, ...]
    cleaned_end_offset: int
    """The offset up to which the sources are clean (exclusive): E, or D if the sources are local."""
    is_copied: bool
    """Whether the sources are local segments that are clean, so that their batches are copied."""

    @property
    def start_offset(self) -> int:
        return min(each.start_offset for each in self.segments)

    @property
    def last_offset(self) -> int:
        return max(each.last_offset for each in self.segments)


class CleaningPlan(NamedTuple):
    """The plan of one pass of cleaning over the remote segments of one log."""

    map_start_offset: int
    map_end_offset: int
    """The end (exclusive) of the offsets whose keys the pass reads."""
    map_parts: tuple[PlannedPart, ...]
    groups: tuple[PlannedGroup, ...]


def plan_cleaning(log: LogState, remote_log: RemoteLog, bytes_max: int, now_ms: int) -> CleaningPlan | None:
    """Plan the next pass of cleaning over remote segments; None if no group is dirty enough. The pass reads about
    `bytes_max` bytes of groups, and as many of other remote segments for their keys, but at least one segment of each.
    """
    clean_end_offset = log.first_dirty_offset
    if clean_end_offset is None or log.failure is not None:
        return None
    if remote_log.cleaned_end_offset() >= clean_end_offset:
        return None  # every segment is cleaned as far as it can be: none has to be looked at
    entries = log.epochs.entries
    known: list[RemoteSegment] = []
    foreign: list[RemoteSegment] = []
    for segment in remote_log.read_segments():
        is_known = is_in_history(segment, log.end_offset, entries, is_compacted=True)
        (known if is_known else foreign).append(segment)
    newer = _NewerBytes(log, known, clean_end_offset)
    wanted = [
        group
        for segments in cleaning_groups(known, log.config.segment_bytes)
        if (group := _planned(log, segments, clean_end_offset)) is not None
        and (newer.is_enough(_cleaned_end(segments)) or _is_overdue(log, segments, now_ms))
        and not any(_overlap(group, each) for each in foreign)
    ]
    chosen = _affordable(sorted(wanted, key=lambda each: (_cleaned_end(each.segments), each.start_offset)), bytes_max)
    map_start_offset = min((each.cleaned_end_offset for each in chosen if not each.is_copied), default=clean_end_offset)
    map_parts = _map_parts(log, known, map_start_offset, clean_end_offset, bytes_max)
    map_end_offset = map_parts[-1].end_offset if map_parts else map_start_offset
    groups = tuple(each for each in chosen if each.is_copied or each.cleaned_end_offset < map_end_offset)
    return CleaningPlan(map_start_offset, map_end_offset, map_parts, groups) if groups else None


def _planned(log: LogState, segments: Sequence[RemoteSegment], clean_end_offset: int) -> PlannedGroup | None:
    """Plan the cleaning of a group of segments, with its sources. Return None if the segments are already cleaned up to
    `clean_end_offset`."""
    cleaned_end_offset = _cleaned_end(segments)
    if cleaned_end_offset >= clean_end_offset:
        return None
    start_offset, end_offset = segments[0].start_offset, max(each.last_offset for each in segments) + 1
    if log.segments[0].base_offset <= start_offset and end_offset <= min(clean_end_offset, log.active.base_offset):
        parts = _local_parts(log, start_offset, end_offset)
        return PlannedGroup(tuple(segments), tuple(parts), clean_end_offset, is_copied=True)
    parts = _remote_parts(segments, start_offset, end_offset)
    return PlannedGroup(tuple(segments), tuple(parts), cleaned_end_offset, is_copied=False)


def _cleaned_end(segments: Iterable[RemoteSegment]) -> int:
    lineages = [read_lineage(each.custom_metadata) for each in segments]
    return min(each.cleaned_end_offset if each else 0 for each in lineages)


def _is_overdue(log: LogState, segments: Sequence[RemoteSegment], now_ms: int) -> bool:
    """Whether a segment of the group was last changed longer ago than `max.compaction.lag.ms`."""
    lag_ms = log.config.max_compaction_lag_ms
    return lag_ms < INT64_MAX and any(now_ms - each.event_timestamp_ms > lag_ms for each in segments)


class _NewerBytes:
    """The bytes of the clean part of a log, remote and local, that are past the cleaned end offset of a group. A
    segment that is partly past it counts as a whole."""

    def __init__(self, log: LogState, known: Sequence[RemoteSegment], clean_end_offset: int) -> None:
        local_start_offset = log.segments[0].base_offset
        sizes = [(each.start_offset, each.size) for each in known if each.start_offset < local_start_offset]
        sizes += [(each.base_offset, each.size) for each in log.segments if each.base_offset < clean_end_offset]
        self._starts = [start_offset for start_offset, _ in sizes]
        self._sums = list(accumulate((size for _, size in sizes), initial=0))
        """The bytes of the oldest segments, by the number of segments that are added up."""
        self._ratio = log.config.min_cleanable_dirty_ratio

    def is_enough(self, cleaned_end_offset: int) -> bool:
        """Whether the bytes past `cleaned_end_offset` are a larger share of all bytes than
        `min.cleanable.dirty.ratio`."""
        total = self._sums[-1]
        newer = total - self._sums[max(0, bisect_right(self._starts, cleaned_end_offset) - 1)]
        return newer > self._ratio * total


def _overlap(group: PlannedGroup, segment: RemoteSegment) -> bool:
    return segment.start_offset <= group.last_offset and group.start_offset <= segment.last_offset


def _affordable(groups: Sequence[PlannedGroup], bytes_max: int) -> list[PlannedGroup]:
    chosen: list[PlannedGroup] = []
    left = bytes_max
    for group in groups:
        left -= sum(each.size for each in group.segments)
        if chosen and left < 0:
            break
        chosen.append(group)
    return chosen


def _map_parts(
    log: LogState, known: Sequence[RemoteSegment], start_offset: int, end_offset: int, bytes_max: int
) -> tuple[PlannedPart, ...]:
    """Return the parts of segments from which the pass reads the keys of [start_offset, end_offset): remote parts, then
    local ones.

    The parts end at the first gap, or when `bytes_max` bytes of remote segments are exceeded. The first part is taken
    in any case.
    """
    local_start_offset = log.segments[0].base_offset
    parts = _remote_parts(known, start_offset, min(local_start_offset, end_offset))
    parts += _local_parts(log, start_offset, end_offset)
    first_offset = min([local_start_offset, *(each.start_offset for each in known)])
    reached, left = max(start_offset, first_offset), bytes_max
    taken: list[PlannedPart] = []
    for part in parts:
        if isinstance(part.source, RemoteSegment):
            left -= part.source.size
        if part.first_offset > reached or (taken and left < 0):
            break
        reached = part.end_offset
        taken.append(part)
    return tuple(taken)


def _remote_parts(segments: Iterable[RemoteSegment], first_offset: int, end_offset: int) -> list[PlannedPart]:
    """Return the parts of remote segments with offsets in [first_offset, end_offset). If segments overlap, no offset is
    in two of the parts.
    """
    parts: list[PlannedPart] = []
    for segment in sorted(segments, key=lambda each: (each.start_offset, each.segment_id)):
        part_end_offset = min(segment.last_offset + 1, end_offset)
        first_offset = max(first_offset, segment.start_offset)
        if first_offset < part_end_offset:
            parts.append(PlannedPart(first_offset, part_end_offset, segment))
            first_offset = part_end_offset
    return parts


def _local_parts(log: LogState, first_offset: int, end_offset: int) -> list[PlannedPart]:
    """Return the parts of rolled local segments with offsets in [first_offset, end_offset)."""
    return [
        PlannedPart(
            max(first_offset, each.base_offset),
            min(end_offset, later.base_offset),
            SegmentSize(each.base_offset, each.size),
        )
        for each, later in pairwise(log.segments)
        if max(first_offset, each.base_offset) < min(end_offset, later.base_offset)
    ]
