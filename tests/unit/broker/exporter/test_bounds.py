"""The difference of offsets, for many partitions at once."""

from __future__ import annotations

import asyncio
import random
from array import array
from collections.abc import Mapping

import pytest

from moldau.broker.console.lag import PartitionEnds
from moldau.broker.exporter import bounds as bounds_module
from moldau.broker.exporter.bounds import GroupPartitions, LagBounds, LogOffsets, Partition

A, B, C, D = ("t", 0), ("t", 1), ("t", 2), ("u", 0)
LAST = {A: 10, B: 20, C: 30}


class Group:
    """The offsets of a group and the logs that it reads."""

    def __init__(self, committed: Mapping[Partition, int]) -> None:
        self.logs = LogOffsets()
        self.offsets = GroupPartitions(list(committed), array("q", committed.values()))
        self.offsets.look_up_positions(self.logs)

    def look(
        self, first: Mapping[Partition, int] | None = None, last: Mapping[Partition, int] = LAST, most: int = 10
    ) -> LagBounds | None:
        async def look() -> LagBounds | None:
            await self.logs.take(PartitionEnds(first or {}, last))
            return await self.offsets.bounds(self.logs, most)

        return asyncio.run(look())


def bounds(
    committed: Mapping[Partition, int], first: Mapping[Partition, int] | None = None, most: int = 10
) -> LagBounds:
    found = Group(committed).look(first, most=most)
    assert found is not None
    return found


def test_the_lag_is_what_is_between_the_offset_and_the_end() -> None:
    found = bounds({A: 10, B: 5, C: 29})
    assert (found.keys, [*found.begins], [*found.lags]) == ([A, B, C], [10, 5, 29], [0, 15, 1])


def test_what_retention_removed_is_no_lag() -> None:
    found = bounds({A: 1, B: 5}, {B: 12})
    assert ([*found.begins], [*found.lags]) == ([1, 12], [9, 8])
    trimmed_before = bounds({A: 7, B: 15}, {A: 7, B: 12})
    assert ([*trimmed_before.begins], [*trimmed_before.lags]) == ([7, 15], [3, 5])


def test_an_offset_past_the_end_has_no_lag_and_an_end_that_is_not_known_is_left_out() -> None:
    found = bounds({A: 11, D: 3, C: 0})
    assert (found.keys, [*found.lags]) == ([A, C], [0, 30])


def test_the_furthest_come_first_and_those_without_a_lag_never() -> None:
    found = bounds({A: 10, B: 5, C: 29})
    assert [found.keys[place] for place in found.furthest] == [B, C]
    assert [found.keys[place] for place in bounds({A: 10, B: 5, C: 29}, most=1).furthest] == [B]
    assert bounds({A: 10}).furthest == [] == bounds({}).furthest
    equal = bounds({A: 5, B: 15, C: 25})
    assert [equal.keys[place] for place in equal.furthest] == [A, B, C]


@pytest.mark.parametrize("piece", [1, 3, 7, 100])
def test_sums_and_the_furthest_are_those_of_all_partitions(monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    """Drawn groups, some offsets past the end, some before the start, some ends unknown, looked at in pieces."""
    monkeypatch.setattr(bounds_module, "PIECE", piece)
    draw = random.Random(piece)
    for _ in range(200):
        keys = [("t", index) for index in range(draw.randrange(30))]
        committed = {key: draw.randrange(12) for key in keys}
        first = {key: draw.choice((0, 0, 4)) for key in keys}
        last = {key: draw.choice((4, 9, 10)) for key in keys if draw.random() < 0.9}
        most = draw.randrange(1, 12)
        group = Group(committed)
        found = group.look(first, last, most)
        assert found is not None
        begins = {key: max(committed[key], first[key]) for key in keys if key in last}
        lags = {key: max(last[key] - begin, 0) for key, begin in begins.items()}
        assert (list(found.keys), [*found.begins], [*found.lags]) == (
            list(lags),
            list(begins.values()),
            [*lags.values()],
        )
        ranked = sorted(filter(lags.__getitem__, lags), key=lags.__getitem__, reverse=True)
        assert [found.keys[place] for place in found.furthest] == ranked[:most]
        for place in found.furthest:
            lags[found.keys[place]] = counted = draw.randrange(found.lags[place] + 1)
            found.replace_lag(place, counted)
        assert (found.sum, found.most) == (sum(lags.values()), max(lags.values(), default=0))
        assert found.behind_count == sum(map(bool, lags.values())) and [*found.lags] == [*lags.values()]
        assert [*committed.values()] == [*group.offsets.committed], "what is committed has not changed"


def test_a_group_whose_ends_and_offsets_are_as_before_is_not_looked_at_again() -> None:
    group = Group({A: 1, B: 2})
    assert group.look() is not None and not group.logs.is_same
    assert group.look() is None and group.logs.is_same
    assert group.look(last={**LAST, C: 31}) is None, "it does not read this one"
    grown = group.look(last={**LAST, B: 21})
    assert grown is not None and [*grown.lags] == [9, 19]
    trimmed = group.look({A: 4}, {**LAST, B: 21})
    assert trimmed is not None and [*trimmed.lags] == [6, 19]
    group.offsets.commit(array("q", [6, 3]))
    committed = group.look({A: 4}, {**LAST, B: 21})
    assert committed is not None and [*committed.lags] == [4, 18]
    group.logs = LogOffsets()
    group.offsets.look_up_positions(group.logs)
    assert group.look({A: 4}, {**LAST, B: 21}) is None, "the partitions have other positions, and the same ends"


def test_groups_of_many_partitions_are_looked_at_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds_module, "PIECE", 2)
    found = bounds({A: 1, B: 2, C: 3, D: 4})
    assert (found.keys, [*found.lags]) == ([A, B, C], [9, 18, 27])
