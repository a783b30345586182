"""Groups of neighbouring segments that are cleaned into one segment: those that fit by their sizes before cleaning."""

from __future__ import annotations

from moldau.storage.compaction.source_segment import SourceSegment
from moldau.storage.files.log_paths import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX
from moldau.storage.segment.segment import RELATIVE_OFFSET_MAX


def group_segments(
    segments: list[SourceSegment], segment_bytes: int, segment_index_bytes: int, first_uncleanable_offset: int
) -> list[list[SourceSegment]]:
    """Put neighbours into groups that each fit into one segment: by the size of the .log files and of each index, and
    by the span of their offsets, which an index entry holds in 31 bits. Raises OSError."""
    groups: list[list[SourceSegment]] = []
    sizes = [0, 0, 0]
    limits = [segment_bytes, segment_index_bytes, segment_index_bytes]
    for number, segment in enumerate(segments):
        added = [segment.size, segment.file_size(OFFSET_INDEX_SUFFIX), segment.file_size(TIME_INDEX_SUFFIX)]
        behind = segments[number + 1].base_offset if number + 1 < len(segments) else first_uncleanable_offset
        grown = [have + more for have, more in zip(sizes, added, strict=True)]
        if (
            groups
            and all(size <= limit for size, limit in zip(grown, limits, strict=True))
            # The span does not limit an empty segment, which has no index entries. Otherwise one empty segment would
            # stay for every 2^31 offsets.
            and (not segment.size or behind - 1 - groups[-1][0].base_offset <= RELATIVE_OFFSET_MAX)
        ):
            groups[-1].append(segment)
            sizes = grown
        else:
            groups.append([segment])
            sizes = added
    return groups
