"""The groups of remote segments that are cleaned together, and the metadata of the result (decision 14).

A group is one run of neighbours and gives one segment, so that one record swaps it in. No segment spans the border of a
group: segments that overlap are cleaned together or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from moldau.storage.checkpoints.leader_epochs import EpochStart
from moldau.storage.tiered.metadata.lineage import (
    ANCESTOR_COUNT_MAX,
    Lineage,
    ancestor_digest,
    erased_end_offset,
    read_lineage,
)
from moldau.storage.tiered.metadata.remote_segment import RemoteSegment

OFFSET_SPAN_MAX: Final = (1 << 31) - 1
"""The most offsets in a group, because offsets in an index are relative to the start of the segment, in 31 bits.

Sizes in the metadata records have 31 bits, too.
"""


def cleaning_groups(segments: Sequence[RemoteSegment], size_max: int) -> list[list[RemoteSegment]]:
    """Divide the given segments (from `RemoteLog.read_segments`) into groups that cleaning may merge into one segment
    each.

    The segments of a group are adjacent, and have at most `size_max` bytes together. A single segment, or a run of
    overlapping segments, stays together even if it is larger. A group is left out if one segment could not hold it. It
    then has too many bytes, offsets or source segments, or leader epochs whose start offsets do not ascend.
    """
    groups: list[list[RemoteSegment]] = []
    group: list[RemoteSegment] = []
    for run in _overlapping_runs(segments):
        larger = [*group, *run]
        if group and (_size(larger) > size_max or _span(larger) > OFFSET_SPAN_MAX or not _is_neighbour(group, run)):
            groups.append(group)
            larger = run
        group = larger
    if group:
        groups.append(group)
    return [each for each in groups if _can_be_one(each)]


def cleaned_lineage(group: Sequence[RemoteSegment], cleaned_end_offset: int) -> Lineage:
    """Return the lineage of the segment that cleaning makes of a group."""
    return replacing_lineage(group, cleaned_end_offset, min(erased_end_offset(each.custom_metadata) for each in group))


def replacing_lineage(group: Sequence[RemoteSegment], cleaned_end_offset: int, erased_end_offset: int) -> Lineage:
    """Return the lineage of the segment that replaces a group."""
    lineages = [read_lineage(segment.custom_metadata) for segment in group]
    generation = 1 + max(each.generation if each else 0 for each in lineages)
    return Lineage(
        min(generation, 0xFFFF),
        cleaned_end_offset,
        len(group),
        ancestor_digest([each.segment_id for each in group]),
        erased_end_offset,
    )


def merged_epochs(group: Sequence[RemoteSegment]) -> tuple[EpochStart, ...]:
    """Return the leader epochs of a group in ascending order, each with its first offset in the group."""
    starts: dict[int, int] = {}
    for segment in group:
        for epoch, offset in segment.epochs:
            starts[epoch] = min(offset, starts.get(epoch, offset))
    return tuple(EpochStart(epoch, starts[epoch]) for epoch in sorted(starts))


def _overlapping_runs(segments: Sequence[RemoteSegment]) -> list[list[RemoteSegment]]:
    runs: list[list[RemoteSegment]] = []
    last_offset = -1
    for segment in sorted(segments, key=lambda each: (each.start_offset, each.segment_id)):
        if runs and segment.start_offset <= last_offset:
            runs[-1].append(segment)
        else:
            runs.append([segment])
        last_offset = max(last_offset, segment.last_offset)
    return runs


def _is_neighbour(group: Sequence[RemoteSegment], run: Sequence[RemoteSegment]) -> bool:
    return max(each.last_offset for each in group) + 1 == run[0].start_offset


def _size(group: Sequence[RemoteSegment]) -> int:
    return sum(each.size for each in group)


def _span(group: Sequence[RemoteSegment]) -> int:
    return max(each.last_offset for each in group) - min(each.start_offset for each in group)


def _can_be_one(group: Sequence[RemoteSegment]) -> bool:
    """Whether one segment can hold the group. Its size, its offsets and the number of its source segments must be
    within the limits, and the start offsets of its leader epochs must ascend.
    """
    starts = [offset for _, offset in merged_epochs(group)]
    return (
        all(a < b for a, b in pairwise(starts))
        and _span(group) <= OFFSET_SPAN_MAX
        and _size(group) <= OFFSET_SPAN_MAX
        and len(group) <= ANCESTOR_COUNT_MAX
    )
