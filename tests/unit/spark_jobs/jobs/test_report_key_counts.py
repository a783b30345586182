"""Counting keys in bounded memory: bounds that hold for any order of keys, and exact counts if there is room."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from moldau.spark_jobs.jobs.report import KeyCounts


def test_counts_are_exact_while_there_is_room() -> None:
    counts = KeyCounts(keys_max=3)
    counts.add_column(pa.array([b"a", None, b"b", b"a", b""], pa.binary()))
    assert sorted(counts.top()) == [(b"", 1, 0), (b"a", 2, 0), (b"b", 1, 0)]
    assert (counts.without_key, counts.missed_max) == (1, 0)


def test_long_keys_fill_the_memory_too() -> None:
    counts = KeyCounts(keys_max=100, size_max=1000)
    counts.add([(b"hot", 50), *((b"%0300d" % number, 1) for number in range(10))])
    assert (b"hot", 50, 0) in counts.top()
    assert sum(len(each.key) for each in counts.top()) <= 1000 and counts.missed_max >= 1


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 5)), max_size=60), st.integers(2, 6), st.integers(1, 6))
def test_the_bounds_hold(added: list[tuple[int, int]], keys_max: int, reported_max: int) -> None:
    counts, truth = KeyCounts(keys_max=keys_max), Counter[bytes]()
    for number, count in added:
        counts.add([(b"%d" % number, count)])
        truth[b"%d" % number] += count
    top = {each.key: each for each in counts.top(reported_max)}
    assert len(top) <= max(keys_max, reported_max)
    for key, count in truth.items():
        if key in top:
            assert top[key].records <= count <= top[key].records + top[key].missed
        else:
            assert count <= counts.missed_max
