"""The part of a segment that a range of offsets means."""

from __future__ import annotations

from moldau.protocol.batch_iterator import iterate_batches
from moldau.storage.compaction.segments import batches_between
from moldau.storage.log.log import Log
from moldau.testing.simulation.disk import SimulatedDisk
from tests.unit.storage.compaction.histories import COMPACTED, NOW_MS, send


def test_a_batch_that_begins_before_the_range_and_reaches_into_it_belongs_to_it() -> None:
    """A full offset map may end within a batch: what was not compared yet begins there."""
    log = Log.open(SimulatedDisk(), "/data/t-0", COMPACTED, now_ms=NOW_MS)
    for _ in range(3):
        send(log, ("a", "v"), ("b", "v"), ("c", "v"))
    piece = memoryview(log.active.slice(0, log.active.size).read())

    def bases(first_offset: int, end_offset: int) -> list[int]:
        part = batches_between(piece, first_offset, end_offset)
        return [header.base_offset for _, header in iterate_batches(bytes(part))]

    assert bases(0, 9) == [0, 3, 6]
    assert bases(4, 9) == [3, 6]
    assert bases(3, 6) == [3]
    assert bases(3, 5) == [3]
    assert bases(9, 20) == [] and bases(0, 0) == []
