"""The states of a remote segment, and of the removal of a partition's remote segments.

    copy started ──► copy finished ──► delete started ──► delete finished
          └───────────────────────────────►┘

A segment can be read from `COPY_SEGMENT_FINISHED` until `DELETE_SEGMENT_STARTED`. A record that repeats the current
state only updates the broker, the time of the event and the custom metadata. Every other step is refused: the record
has no effect.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class SegmentState(IntEnum):
    """The state of one copy of a segment, by its number in records."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


class PartitionDeleteState(IntEnum):
    """The state of the removal of all remote segments of a partition, by its number in records."""

    DELETE_PARTITION_MARKED = 0
    DELETE_PARTITION_STARTED = 1
    DELETE_PARTITION_FINISHED = 2


BEING_REMOVED: Final = frozenset(
    {PartitionDeleteState.DELETE_PARTITION_MARKED, PartitionDeleteState.DELETE_PARTITION_STARTED}
)
"""The states in which all segments of a partition are being deleted: none of them counts as a copy, whether it still
exists or not."""

SEGMENT_STEPS: Final[dict[SegmentState, tuple[SegmentState, ...]]] = {
    SegmentState.COPY_SEGMENT_STARTED: (
        SegmentState.COPY_SEGMENT_STARTED,
        SegmentState.COPY_SEGMENT_FINISHED,
        SegmentState.DELETE_SEGMENT_STARTED,
    ),
    SegmentState.COPY_SEGMENT_FINISHED: (SegmentState.COPY_SEGMENT_FINISHED, SegmentState.DELETE_SEGMENT_STARTED),
    SegmentState.DELETE_SEGMENT_STARTED: (SegmentState.DELETE_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_FINISHED),
    SegmentState.DELETE_SEGMENT_FINISHED: (SegmentState.DELETE_SEGMENT_FINISHED,),
}
"""The states that may follow each state."""

PARTITION_STEPS: Final[dict[PartitionDeleteState | None, tuple[PartitionDeleteState, ...]]] = {
    None: (PartitionDeleteState.DELETE_PARTITION_MARKED,),
    PartitionDeleteState.DELETE_PARTITION_MARKED: (
        PartitionDeleteState.DELETE_PARTITION_MARKED,
        PartitionDeleteState.DELETE_PARTITION_STARTED,
    ),
    PartitionDeleteState.DELETE_PARTITION_STARTED: (
        PartitionDeleteState.DELETE_PARTITION_STARTED,
        PartitionDeleteState.DELETE_PARTITION_FINISHED,
    ),
    PartitionDeleteState.DELETE_PARTITION_FINISHED: (
        PartitionDeleteState.DELETE_PARTITION_FINISHED,
        PartitionDeleteState.DELETE_PARTITION_MARKED,
    ),
}
"""The states that may follow each state; None: no removal has begun. A topic whose removal is finished may be tiered
again, and be removed again."""
