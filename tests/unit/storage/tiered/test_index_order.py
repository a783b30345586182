"""The check of an index's bytes looks at every entry."""

from __future__ import annotations

from pathlib import Path

import pytest

from moldau.storage.segment.offset_index import ENTRY as OFFSET_ENTRY
from moldau.storage.segment.time_index import ENTRY as TIME_ENTRY
from moldau.storage.tiered.index_order import offset_index_problem, time_index_problem
from tests.unit.storage.tiered.remote_partition import written_log

OUTSIDE, DISORDER = "an entry is outside of the segment", "the entries are out of order"


def test_the_indexes_of_a_log_are_in_order(tmp_path: Path) -> None:
    log = written_log(tmp_path)
    for segment, later in zip(log.segments, log.segments[1:], strict=False):
        delta = later.base_offset - 1 - segment.base_offset
        assert offset_index_problem(bytes(log.fs.read(segment.path(".index"))), delta, segment.size) is None
        assert time_index_problem(bytes(log.fs.read(segment.path(".timeindex"))), delta) is None
    assert offset_index_problem(b"", 9, 100) is None and time_index_problem(b"", 9) is None


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ([(1, 10), (4, 20), (9, 99)], None),
        ([(1, 10), (4, 10), (9, 99)], None),
        ([(1, 10), (8, 20), (7, 30), (9, 99)], DISORDER),
        ([(1, 10), (4, 60), (5, 50), (9, 99)], DISORDER),
        ([(1, 10), (1, 20)], DISORDER),
        ([(1, 10), (4, 20), (0, 0)], DISORDER),
        ([(0, 0), (4, 20)], OUTSIDE),
        ([(-1, 10), (4, 20)], OUTSIDE),
        ([(1, 10), (10, 20)], OUTSIDE),
        ([(1, 10), (9, 100)], OUTSIDE),
    ],
)
def test_an_offset_index(entries: list[tuple[int, int]], problem: str | None) -> None:
    data = b"".join(OFFSET_ENTRY.pack(*each) for each in entries)
    assert offset_index_problem(data, 9, 100) == problem
    assert offset_index_problem(data + b"x", 9, 100) == f"{len(data) + 1} bytes are not whole entries"


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ([(1000, 1), (2000, 1), (3000, 9)], None),
        ([(1000, 1), (3000, 4), (2000, 9)], DISORDER),
        ([(1000, 1), (2000, 8), (3000, 7)], DISORDER),
        ([(1000, 1), (1000, 2)], DISORDER),
        ([(-1, 1), (1000, 2)], OUTSIDE),
        ([(1000, -1), (2000, 2)], OUTSIDE),
        ([(1000, 1), (2000, 10)], OUTSIDE),
    ],
)
def test_a_time_index(entries: list[tuple[int, int]], problem: str | None) -> None:
    data = b"".join(TIME_ENTRY.pack(*each) for each in entries)
    assert time_index_problem(data, 9) == problem
    assert time_index_problem(data + b"x", 9) == f"{len(data) + 1} bytes are not whole entries"
