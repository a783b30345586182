"""The search for the segments that a cleaned or erased segment replaces when its copy is finished (decisions 14 and
36).
"""

from __future__ import annotations

from collections.abc import Mapping

from moldau.storage.tiered.metadata.epoch_segments import EpochSegments
from moldau.storage.tiered.metadata.lineage import Lineage, ancestor_digest
from moldau.storage.tiered.metadata.remote_segment import RemoteSegment
from moldau.storage.tiered.metadata.segment_table import SegmentTable


def replaced_segment_with_same_offsets(
    segment: RemoteSegment, lineage: Lineage, epochs: Mapping[int, EpochSegments], table: SegmentTable
) -> dict[int, RemoteSegment] | None:
    """Return the segment that `segment` replaces, with its row, if it is the only ancestor, is still read, and has the
    same offsets and leader epochs; None otherwise. The new segment is then read in the epochs in which its ancestor was
    read, even if other segments overlap the two.
    """
    if lineage.ancestor_count != 1:
        return None
    wanted = (segment.start_offset, segment.last_offset, segment.epochs)
    for epoch, start_offset in segment.epochs:
        for row in epochs[epoch].referenced_rows(start_offset)[:1]:
            found = table.get(row)
            is_same = (found.start_offset, found.last_offset, found.epochs) == wanted
            if is_same and ancestor_digest([found.segment_id]) == lineage.ancestor_digest:
                return {row: found}
    return None


def ancestors_of(
    segment: RemoteSegment, lineage: Lineage, epochs: Mapping[int, EpochSegments], table: SegmentTable
) -> dict[int, RemoteSegment] | None:
    """Return the ancestors of a segment, by row.

    Return None if the segments that are read in its range are not exactly its ancestors, because some were replaced or
    deleted meanwhile. The new segment must then never be read.
    """
    ancestors: dict[int, RemoteSegment] = {}
    for slot, (epoch, start_offset) in enumerate(segment.epochs):
        last_offset = segment.last_offset_in(slot)
        for row in epochs[epoch].referenced_rows(start_offset):
            if table.offsets(row)[0] > last_offset:
                break
            if table.last_offset_in(row, epoch) >= start_offset:
                ancestors[row] = table.get(row)
    is_whole = all(
        segment.start_offset <= ancestor.start_offset and ancestor.last_offset <= segment.last_offset
        for ancestor in ancestors.values()
    )
    digest = ancestor_digest([ancestor.segment_id for ancestor in ancestors.values()])
    named = (lineage.ancestor_count, lineage.ancestor_digest)
    return ancestors if is_whole and named == (len(ancestors), digest) else None
