"""The difference of offsets, for many partitions at once."""

from __future__ import annotations

from moldau.broker.exporter.bounds import Bounds

A, B, C, D = ("t", 0), ("t", 1), ("t", 2), ("u", 0)


def bounds(offsets: dict[tuple[str, int], int], first: dict[tuple[str, int], int] | None = None) -> Bounds:
    found = Bounds()
    found.add(list(offsets), list(offsets.values()), first or {}, {A: 10, B: 20, C: 30})
    return found


def test_the_lag_is_what_is_between_the_offset_and_the_end() -> None:
    found = bounds({A: 10, B: 5, C: 29})
    assert (found.keys, [*found.begins], [*found.lags]) == ([A, B, C], [10, 5, 29], [0, 15, 1])


def test_what_retention_removed_is_no_lag() -> None:
    found = bounds({A: 1, B: 5}, {B: 12})
    assert ([*found.begins], [*found.lags]) == ([1, 12], [9, 8])


def test_an_offset_past_the_end_has_no_lag_and_an_end_that_is_not_known_is_left_out() -> None:
    found = bounds({A: 11, D: 3, C: 0})
    assert (found.keys, [*found.lags]) == ([A, C], [0, 30])


def test_the_furthest_come_first_and_those_without_a_lag_never() -> None:
    found = bounds({A: 10, B: 5, C: 29})
    assert [found.keys[place] for place in found.furthest(10)] == [B, C]
    assert [found.keys[place] for place in found.furthest(1)] == [B]
    assert bounds({A: 10}).furthest(3) == [] == bounds({}).furthest(3)
