"""Every pair of states: which may follow which."""

from __future__ import annotations

import pytest

from moldau.storage.tiered.metadata.remote_segment import (
    NEXT_PARTITION_DELETE_STATES,
    NEXT_SEGMENT_STATES,
    PartitionDeleteState,
    SegmentState,
)

FINISHED, MARKED = PartitionDeleteState.DELETE_PARTITION_FINISHED, PartitionDeleteState.DELETE_PARTITION_MARKED
ALLOWED = {(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2), (2, 3), (3, 3)}


@pytest.mark.parametrize("before", SegmentState)
@pytest.mark.parametrize("after", SegmentState)
def test_segment_steps(before: SegmentState, after: SegmentState) -> None:
    assert (after in NEXT_SEGMENT_STATES[before]) == ((before, after) in ALLOWED)


@pytest.mark.parametrize("before", [None, *PartitionDeleteState])
@pytest.mark.parametrize("after", PartitionDeleteState)
def test_partition_steps(before: PartitionDeleteState | None, after: PartitionDeleteState) -> None:
    number = -1 if before is None else before
    is_allowed = after in (number, number + 1) or (before, after) == (FINISHED, MARKED)
    assert (after in NEXT_PARTITION_DELETE_STATES[before]) == is_allowed
