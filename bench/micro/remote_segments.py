"""The cost of a million remote segments for a broker: memory, replay of their records, and CPU time of lookups.

Run `python -m bench.micro.remote_segments [SEGMENTS [PARTITIONS]]`. It is a process of its own, so that its anonymous
memory is that of the remote logs. Segments of compacted topics carry a lineage, which is measured apart.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from random import Random
from typing import Final

from bench.processes import memory
from moldau.storage.checkpoints.leader_epochs import EpochStart
from moldau.storage.tiered.metadata.lineage import Lineage
from moldau.storage.tiered.metadata.remote_log import RemoteLog
from moldau.storage.tiered.metadata.remote_segment import RemoteSegment, SegmentState, SegmentUpdate

SEGMENTS: Final = 1_000_000
PARTITIONS: Final = 100
OFFSETS: Final = 500
"""The number of offsets in a segment."""
SEGMENTS_OF_AN_EPOCH: Final = 1_000
LOOKUPS: Final = 20_000


def remote_log(random: Random, count: int, *, is_compacted: bool) -> RemoteLog:
    """Make a remote log from two records for each segment, as a broker reads them."""
    log = RemoteLog()
    for number in range(count):
        epoch, start = number // SEGMENTS_OF_AN_EPOCH, OFFSETS * number
        segment = RemoteSegment(
            random.randbytes(16),
            start,
            start + OFFSETS - 1,
            1,
            1000 * number,
            number,
            (EpochStart(epoch, start),),
            1 << 29,
            custom_metadata=Lineage(1, start + OFFSETS).encode() if is_compacted else None,
        )
        log.replay(segment)
        log.replay(SegmentUpdate(segment.segment_id, 1, number, SegmentState.COPY_SEGMENT_FINISHED))
    return log


def cpu_us(work: Callable[[], object], times: int) -> float:
    before = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - before) / times * 1e6


def measure(name: str, segments: int, partitions: int, *, is_compacted: bool) -> None:
    random, each = Random(1), segments // partitions
    held_before, cpu_before = memory(os.getpid()).anonymous_mb, time.process_time()
    logs = [remote_log(random, each, is_compacted=is_compacted) for _ in range(partitions)]
    replay_us = (time.process_time() - cpu_before) / (each * partitions) * 1e6
    held = memory(os.getpid()).anonymous_mb - held_before
    print(f"{name}: {each * partitions:,} segments of {partitions} partitions")
    print(f"  memory: {held * 1e6 / (each * partitions):.0f} bytes a segment, {held:.0f} MB in all")
    print(f"  replay: {replay_us:.1f} us a segment, two records")

    def place() -> tuple[RemoteLog, int, int]:
        number = random.randrange(each)
        return random.choice(logs), number // SEGMENTS_OF_AN_EPOCH, OFFSETS * number + 7

    def find() -> None:
        log, epoch, offset = place()
        found = log.find_segment(epoch, offset)
        assert found is not None and found.start_offset <= offset

    def find_time() -> None:
        log, epoch, offset = place()
        assert log.first_from_time(epoch, offset // OFFSETS * 1000, offset) is not None

    print(f"  the segment of an offset: {cpu_us(find, LOOKUPS):.1f} us of CPU")
    cpu_us(find_time, LOOKUPS)
    print(f"  the segment of a time: {cpu_us(find_time, LOOKUPS):.1f} us of CPU")
    print(f"  how far all is cleaned: {cpu_us(logs[0].cleaned_end_offset, LOOKUPS):.2f} us of CPU")
    print(f"  all segments of a partition as a list: {cpu_us(logs[0].read_segments, 3) / 1000:.1f} ms of CPU")


def main() -> None:
    segments = int(sys.argv[1]) if len(sys.argv) > 1 else SEGMENTS
    partitions = int(sys.argv[2]) if len(sys.argv) > 2 else PARTITIONS
    measure("plain topics", segments, partitions, is_compacted=False)
    measure("compacted topics", segments, partitions, is_compacted=True)


if __name__ == "__main__":
    main()
