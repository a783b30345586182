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
"""The most offsets in a group: offsets in an index are relative to the segment's start, in 31 bits.

Sizes in records have 31 bits too.
"""


def cleaning_groups(segments: Sequence[RemoteSegment], size_max: int) -> list[list[RemoteSegment]]:
    """Return the segments that are read (`RemoteLog.read_segments`), in groups of at most `size_max` bytes each. A
    group of one segment, or of several that overlap, may be larger. Groups that no single segment could replace are
    left out.
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
    """The lineage of the segment that cleaning makes of a group."""
    return replacing_lineage(group, cleaned_end_offset, min(erased_end_offset(each.custom_metadata) for each in group))


def replacing_lineage(group: Sequence[RemoteSegment], cleaned_end_offset: int, erased_end_offset: int) -> Lineage:
    """The lineage of the segment that replaces a group."""
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
    """The leader epochs of a group, each with its first offset there."""
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
    """Whether one record can describe the result: its epochs must be in the order of their offsets, as in one
    history.
    """
    starts = [offset for _, offset in merged_epochs(group)]
    return (
        all(a < b for a, b in pairwise(starts))
        and _span(group) <= OFFSET_SPAN_MAX
        and _size(group) <= OFFSET_SPAN_MAX
        and len(group) <= ANCESTOR_COUNT_MAX
    )
