"""The offsets of a file by runs: positions of dense ones, joined ones, rows in no order; digests."""

from __future__ import annotations

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from moldau.lake import offset_runs
from moldau.lake.offset_runs import (
    OffsetDigest,
    OffsetRun,
    OffsetRuns,
    RunsBuilder,
    add_digests,
    digests_by_partition,
    offset_digest,
)

PLACES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30)), unique=True, max_size=40)


def batch(places: list[tuple[int, int]]) -> pa.RecordBatch:
    partitions, offsets = [each[0] for each in places], [each[1] for each in places]
    columns = [pa.array(partitions, pa.int32()), pa.array(offsets, pa.int64())]
    return pa.RecordBatch.from_arrays(columns, names=["partition", "offset"])


def built(*parts: list[tuple[int, int]]) -> OffsetRuns:
    builder = RunsBuilder()
    for each in parts:
        builder.add(batch(each))
    return OffsetRuns.of_json(builder.runs.to_json().encode())


def test_a_position_follows_from_the_runs() -> None:
    runs = built([(0, 5), (0, 6)], [(0, 7), (1, 0), (0, 9)])
    assert runs == OffsetRuns([OffsetRun(0, 5, 7, 3), OffsetRun(1, 0, 0, 1), OffsetRun(0, 9, 9, 1)])


@given(PLACES, PLACES)
def test_runs_say_what_rows_a_file_has(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> None:
    runs = built(first, second)
    rows = first + second
    partitions, offsets = np.array([each[0] for each in rows], np.int32), np.array([each[1] for each in rows], np.int64)
    assert list(runs.faults(partitions, offsets)) == []
    if rows:
        assert list(runs.faults(partitions[1:], offsets[1:]))
        assert list(runs.faults(partitions, np.r_[offsets[:-1], 99]))
    assert all(each.rows == each.last - each.first + 1 for each in runs.runs)


def test_too_many_runs_are_joined_and_rows_in_no_order_have_one_for_each_partition() -> None:
    count = 3 * offset_runs.RUNS_MAX
    ascending = [(0, 2 * each) for each in range(count)]
    runs = built(ascending)
    assert runs.is_ordered and len(runs.runs) <= offset_runs.RUNS_MAX
    assert sum(each.rows for each in runs.runs) == count
    offsets = np.array([each[1] for each in ascending], np.int64)
    assert list(runs.faults(np.zeros(count, np.int32), offsets)) == []
    falling = [(each % 2, 2 * each) for each in reversed(range(count))]
    runs = built(falling[:100], falling[100:], [(1, 5)])
    assert not runs.is_ordered and sorted(each.partition for each in runs.runs) == [0, 1]
    assert sum(each.rows for each in runs.runs) == count + 1


@given(st.lists(st.integers(0, (1 << 63) - 1), unique=True, min_size=1), st.randoms())
def test_a_tally_tells_sets_apart_whatever_their_order(offsets: list[int], dice: object) -> None:
    some, reverse = np.array(offsets, np.int64), np.array(offsets[::-1], np.int64)
    assert offset_digest(some) == offset_digest(reverse) == offset_digest(some[:1]).plus(offset_digest(some[1:]))
    assert offset_digest(some) != offset_digest(np.r_[some[:-1], some[-1] ^ 1]) and offset_digest(
        some
    ) != offset_digest(some[1:])


def test_tallies_are_by_partition() -> None:
    found = digests_by_partition(batch([(0, 1), (1, 1), (0, 2)]))
    assert {each: found[each].number for each in found} == {0: 2, 1: 1}
    assert add_digests(found, {2: OffsetDigest(1, 7)}) == {**found, 2: OffsetDigest(1, 7)}
