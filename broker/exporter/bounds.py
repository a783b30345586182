"""Upper bounds of the lag of groups, from offsets alone: the end offset minus the committed offset, for each partition.

A sample may have 500,000 offsets, so functions in C do the work for each offset. A partition is looked up by name only
once; from then on its group uses the position of the partition in the lists of `LogOffsets`.
"""

from __future__ import annotations

import asyncio
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress, count, islice, repeat
from operator import itemgetter, lt, sub
from typing import Final

from moldau.broker.console.lag import PartitionEnds

Partition = tuple[str, int]
Values = tuple[int, ...]
UNKNOWN_END: Final = -1 << 62
"""Stands for the end of a log that the leader has not reported."""
PIECE: Final = 2_000
"""The number of partitions that are processed in one iteration of the event loop."""


class LogOffsets:
    """The start and end offsets of all logs that groups of one isolation level read, in two lists. Each partition has
    one position in both lists.
    """

    __slots__ = ("_positions", "first", "is_same", "last")

    def __init__(self) -> None:
        self._positions: dict[Partition, int] = {}
        self.first: list[int] = []
        """The log start offsets; empty if all of them are 0."""
        self.last: list[int] = []
        self.is_same = False
        """Whether the offsets are the same as in the previous sample."""

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._positions)

    def positions(self, keys: Iterable[Partition]) -> list[int]:
        """The positions of partitions in the lists `first` and `last`. A partition that has none yet gets the next
        one.
        """
        known = self._positions
        return [known.setdefault(key, len(known)) for key in keys]

    async def take(self, ends: PartitionEnds) -> None:
        """Replace the start and end offsets by those in `ends`."""
        first: list[int] = []
        last: list[int] = []
        keys = iter(tuple(self._positions))
        while piece := tuple(islice(keys, PIECE)):
            first += map(ends.first.get, piece, repeat(0))
            last += map(ends.last.get, piece, repeat(UNKNOWN_END))
            await asyncio.sleep(0)
        if not any(first):
            first = []
        self.is_same = first == self.first and last == self.last
        self.first, self.last = first, last


class GroupPartitions:
    """The partitions of one group, and the committed offset of each."""

    __slots__ = ("_before", "_pieces", "committed", "keys")

    def __init__(self, keys: list[Partition], committed: array[int]) -> None:
        self.keys = keys
        self.committed = committed
        self._pieces: list[tuple[slice, Callable[[Sequence[int]], Values]]] = []
        self._before: list[tuple[Values, Values]] | None = None
        """The start and end offsets that the last call of `bounds` read; None if the committed offsets have changed
        since.
        """

    def look_up_positions(self, logs: LogOffsets) -> None:
        """Look up the positions of the group's partitions in `logs`."""
        places = logs.positions(self.keys)
        self._pieces = [
            (slice(begin, begin + PIECE), values_getter(places[begin : begin + PIECE]))
            for begin in range(0, len(places), PIECE)
        ]

    def commit(self, committed: array[int]) -> None:
        """Replace the committed offsets. The group has the same partitions as before."""
        self.committed, self._before = committed, None

    async def bounds(self, logs: LogOffsets, furthest_max: int) -> LagBounds | None:
        """Compute the lags of the partitions; None if nothing has changed since the last call. The result names the
        `furthest_max` partitions that are furthest behind.
        """
        read: list[tuple[Values, Values]] = [
            (at(logs.first) if logs.first else (), at(logs.last)) for _, at in self._pieces
        ]
        if read == self._before:
            return None
        self._before = read
        bounds = LagBounds(furthest_max)
        if len(read) == 1:
            bounds.add(self.keys, self.committed, *read[0])
            return bounds
        for (piece, _), (first, last) in zip(self._pieces, read, strict=True):
            bounds.add(self.keys[piece], self.committed[piece], first, last)
            await asyncio.sleep(0)
        return bounds


class LagBounds:
    """The lag of each partition of one group: an upper bound, until `replace_lag` sets the counted number of records.
    A partition without a known end is left out.
    """

    __slots__ = ("_furthest_max", "_other_most", "begins", "behind_count", "furthest", "keys", "lags", "sum")

    def __init__(self, furthest_max: int) -> None:
        self._furthest_max = furthest_max
        self._other_most = 0
        """The largest lag of the partitions that are not in `furthest`."""
        self.keys: list[Partition] = []
        self.begins = array("q")
        """For each partition: the offset of the first record that the group has not read. It is the committed offset,
        or the log start offset if that is later.
        """
        self.lags = array("q")
        """For each partition: the number of offsets from `begins` to the end of the log."""
        self.sum = 0
        self.behind_count = 0
        """The number of partitions with a lag."""
        self.furthest: list[int] = []
        """The indexes of the partitions with the largest lags, the largest first, as they were added. Partitions
        without a lag are left out.
        """

    def add(self, keys: list[Partition], offsets: array[int], first: Sequence[int], last: Sequence[int]) -> None:
        """Add partitions with their committed offsets, and the start and end offsets (`first`, `last`) of their logs.
        `first` is empty if all start offsets are 0. The caller must not use `keys` and `offsets` afterwards, because
        the first call keeps the two lists and later calls extend them.
        """
        begins = offsets
        if trimmed := list(compress(count(), map(lt, offsets, first))):
            begins = offsets[:]
            for place in trimmed:
                begins[place] = first[place]
        lags = list(map(sub, last, begins))
        ordered = sorted(lags)
        if ordered and ordered[0] < 0:
            known = list(map(UNKNOWN_END.__ne__, last))
            if not all(known):
                keys, begins = list(compress(keys, known)), array("q", compress(begins, known))
                lags = list(compress(lags, known))
            lags = list(map(max, lags, repeat(0)))
            ordered = sorted(lags)
        self.sum += sum(lags)
        self.behind_count += len(ordered) - bisect_right(ordered, 0)
        place = len(self.lags)
        self.lags.fromlist(lags)
        if place:
            self.keys += keys
            self.begins += begins
        else:
            self.keys, self.begins = keys, begins
        if ordered and ordered[-1]:
            self._add_furthest(place, lags, ordered)

    def _add_furthest(self, begin: int, lags: list[int], ordered: list[int]) -> None:
        """Find those partitions that are furthest behind among the ones whose indexes begin at `begin`. `lags` are
        their lags in the order in which they were added, `ordered` the same lags in ascending order.
        """
        most = self._furthest_max
        largest = ordered[-most:]
        least = max(largest[0], 1)
        if least == largest[-1]:  # Often all partitions lag by the same: then the first ones are enough.
            found = list(islice(compress(count(), map(least.__eq__, lags)), len(largest)))
        else:
            found = list(compress(count(), map(least.__le__, lags)))
            found = sorted(found, key=lags.__getitem__, reverse=True)[:most]
        others = max(self._other_most, ordered[-most - 1] if len(ordered) > most else 0)
        merged = [*self.furthest, *(begin + each for each in found)]
        if self.furthest:
            merged.sort(key=self.lags.__getitem__, reverse=True)
            others = max(others, self.lags[merged[most]] if len(merged) > most else 0)
        self.furthest, self._other_most = merged[:most], others

    def replace_lag(self, place: int, records: int) -> None:
        """Replace the lag of the partition with the index `place`, which is one of the furthest, by the counted number
        of records.
        """
        before = self.lags[place]
        self.lags[place] = records
        self.sum += records - before
        self.behind_count += (records > 0) - (before > 0)

    @property
    def most(self) -> int:
        """The largest lag."""
        return max((self._other_most, *map(self.lags.__getitem__, self.furthest)))


def values_getter(places: Sequence[int]) -> Callable[[Sequence[int]], Values]:
    """Make a function that returns the values of a list at these positions."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda values: tuple(values[place] for place in places)
