"""What a broker with many remote segments pays for them."""

from __future__ import annotations

import tracemalloc
from random import Random

import pytest

from moldau.storage.checkpoints.leader_epochs import EpochStart
from moldau.storage.tiered.metadata.remote_log import RemoteLog
from moldau.storage.tiered.metadata.remote_segment import RemoteSegment, SegmentState, SegmentUpdate

COUNT = 10_000


def large_log(count: int) -> RemoteLog:
    random, log = Random(1), RemoteLog()
    for number in range(count):
        epoch, start = number // 1000, 500 * number
        segment = RemoteSegment(
            random.randbytes(16), start, start + 499, 1, 1000 * number, number, (EpochStart(epoch, start),), 1 << 29
        )
        log.replay(segment)
        log.replay(SegmentUpdate(segment.segment_id, 1, number, SegmentState.COPY_SEGMENT_FINISHED))
    return log


@pytest.mark.slow
def test_ten_thousand_segments_take_at_most_130_bytes_each() -> None:
    tracemalloc.start()
    try:
        log = large_log(COUNT)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used / COUNT <= 130
    assert log.memory_size() <= used
    found = log.find_segment(3, 1_900_000)
    assert found is not None and found.start_offset == 1_900_000
