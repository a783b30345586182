"""What may be cleaned of a log, and which log is cleaned next."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moldau.storage.compaction.request import CleanablePart, cleanable_part, dirtiest_log, producers_open_at_start
from moldau.storage.log.log import Log
from moldau.storage.log_config import LogConfig
from moldau.testing.simulation.disk import SimulatedDisk
from tests.unit.storage.compaction.histories import COMPACTED, NOW_MS, send


@pytest.fixture
def log() -> Log:
    """Segments of four offsets: 0, 4, 8, 12 and the active one from 16 on; offset n has the timestamp NOW_MS + n."""
    opened = Log.open(SimulatedDisk(), "/data/t-0", replace(COMPACTED, segment_bytes=1 << 20), now_ms=NOW_MS)
    for number in range(18):
        send(opened, ("k", "v"), timestamp=NOW_MS + number)
        if number % 4 == 3:
            opened.roll(NOW_MS)
    return opened


def with_config(log: Log, **changes: object) -> LogConfig:
    return replace(log.config, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("checkpointed", "last_stable", "first_dirty", "first_uncleanable", "clean", "cleanable"),
    [
        (None, 18, 0, 16, 0, 4),
        (0, 18, 0, 16, 0, 4),
        (8, 18, 8, 16, 2, 2),
        (9, 18, 9, 16, 3, 2),  # the segment with the first dirty offset counts on both sides, as in Kafka
        (8, 13, 8, 12, 2, 1),
        (8, 12, 8, 12, 2, 1),
        (8, 11, 8, 8, 2, 0),
        (8, 3, 8, 8, 2, 0),
        (9, 10, 9, 8, 3, 0),
        (16, 18, 16, 16, 4, 0),
        (17, 18, 17, 16, 5, 0),
    ],
)
def test_the_cleanable_part_ends_where_a_segment_begins(
    log: Log, checkpointed: int, last_stable: int, first_dirty: int, first_uncleanable: int, clean: int, cleanable: int
) -> None:
    part = cleanable_part(log, checkpointed, last_stable, NOW_MS)
    assert (part.first_dirty_offset, part.first_uncleanable_offset) == (first_dirty, first_uncleanable)
    sizes = [segment.size for segment in log.segments]
    assert part.clean_bytes == sum(sizes[:clean])
    covering = [segment.size for segment in log.segments if segment.base_offset < first_uncleanable]
    assert part.cleanable_bytes == (sum(covering[-cleanable:]) if cleanable else 0)
    assert not part.is_checkpoint_reset and part.compaction_overdue_ms == 0


@pytest.mark.parametrize("checkpointed", [19, 3])
def test_a_checkpoint_outside_of_the_log_counts_as_none(log: Log, checkpointed: int) -> None:
    log.advance_log_start(5, 18)
    part = cleanable_part(log, checkpointed, 18, NOW_MS)
    assert part.is_checkpoint_reset and part.first_dirty_offset == 5


def test_young_segments_are_not_cleaned(log: Log) -> None:
    log.config = with_config(log, min_compaction_lag_ms=100)
    for now_ms, first_uncleanable in ((NOW_MS + 102, 0), (NOW_MS + 103, 4), (NOW_MS + 111, 12), (NOW_MS + 500, 16)):
        assert cleanable_part(log, None, 18, now_ms).first_uncleanable_offset == first_uncleanable


def test_the_first_batch_of_a_dirty_segment_may_be_overdue(log: Log) -> None:
    log.config = with_config(log, max_compaction_lag_ms=100)
    assert cleanable_part(log, None, 18, NOW_MS + 100).compaction_overdue_ms == 0
    assert cleanable_part(log, None, 18, NOW_MS + 107).compaction_overdue_ms == 7
    part = cleanable_part(log, 4, 18, NOW_MS + 107)
    assert part.compaction_overdue_ms == 3 and part.must_be_cleaned(1.0)
    assert not part._replace(cleanable_bytes=0).must_be_cleaned(0.5)


def test_a_tiered_log_is_cleaned_although_the_snapshot_at_its_start_is_missing(log: Log) -> None:
    log.config = with_config(log, is_tiered=True)
    log.truncate_fully_and_start_at(20, NOW_MS)
    send(log, ("k", "v"))
    log.roll(NOW_MS)
    send(log, ("k", "v"))
    log.advance_log_start(21, 22)
    log.delete_old_segments(NOW_MS, 22)
    assert log.segments[0].base_offset == 21 and log.snapshots.offsets == [21]
    log.fs.unlink(log.snapshots.path(21))
    assert producers_open_at_start(log) == frozenset()


def part(clean: int, cleanable: int, overdue_ms: int = 0) -> CleanablePart:
    return CleanablePart(0, 0, clean, cleanable, overdue_ms, False)


def test_the_dirtiest_of_the_wanted_logs_is_next() -> None:
    assert dirtiest_log([]) is None
    assert dirtiest_log([("empty", part(0, 0), 0.0)]) is None
    assert dirtiest_log([("half", part(5, 5), 0.5)]) is None
    parts = [("a", part(5, 6), 0.5), ("b", part(1, 6), 0.5), ("c", part(0, 9), 1.0)]
    assert dirtiest_log(parts) == "b"
    assert dirtiest_log([*parts, ("late", part(0, 1, 5), 1.0)]) == "late"
    assert dirtiest_log([("late", part(9, 0, 5), 0.5)]) is None
