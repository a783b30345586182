"""Upper bounds of the lag of groups, from offsets alone: the end offset minus the committed offset, for each partition.

A sample may have 500,000 offsets. So the work for each offset is done by functions in C, and a partition is looked up
by its name only once: then its group has the position of the partition in the lists of `Logs`.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress, count, islice, repeat
from operator import itemgetter, lt, sub
from typing import Final

from moldau.broker.console.lag import Ends

Partition = tuple[str, int]
Values = tuple[int, ...]
UNKNOWN: Final = -1 << 62
"""Stands for the end of a log that the leader has not reported."""
PIECE: Final = 2_000
"""The number of partitions that are processed in one iteration of the event loop."""


class Logs:
    """The start and end offsets of all logs that groups with the same isolation level read. Lists have them by
    position.
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

    async def take(self, ends: Ends) -> None:
        """Replace the start and end offsets by those in `ends`."""
        first: list[int] = []
        last: list[int] = []
        keys = iter(tuple(self._positions))
        while piece := tuple(islice(keys, PIECE)):
            first += map(ends.first.get, piece, repeat(0))
            last += map(ends.last.get, piece, repeat(UNKNOWN))
            await asyncio.sleep(0)
        if not any(first):
            first = []
        self.is_same = first == self.first and last == self.last
        self.first, self.last = first, last


class Offsets:
    """The partitions of one group, and the committed offset of each."""

    __slots__ = ("_before", "_pieces", "committed", "keys")

    def __init__(self, keys: Sequence[Partition], committed: Sequence[int]) -> None:
        self.keys = keys
        self.committed = committed
        self._pieces: list[tuple[slice, Callable[[Sequence[int]], Values]]] = []
        self._before: list[tuple[Values, Values]] | None = None
        """The start and end offsets that the last call of `bounds` read; None if the committed offsets have changed
        since.
        """

    def place(self, logs: Logs) -> None:
        """Look up the positions of the group's partitions in `logs`."""
        places = logs.positions(self.keys)
        self._pieces = [
            (slice(begin, begin + PIECE), values_at(places[begin : begin + PIECE]))
            for begin in range(0, len(places), PIECE)
        ]

    def commit(self, committed: Sequence[int]) -> None:
        """Replace the committed offsets. The group has the same partitions as before."""
        self.committed, self._before = committed, None

    async def bounds(self, logs: Logs) -> Bounds | None:
        """Compute the lags of the partitions; None if they are the same as in the last call."""
        read: list[tuple[Values, Values]] = [
            (at(logs.first) if logs.first else (), at(logs.last)) for _, at in self._pieces
        ]
        if read == self._before:
            return None
        self._before = read
        bounds = Bounds()
        for (piece, _), (first, last) in zip(self._pieces, read, strict=True):
            bounds.add(self.keys[piece], self.committed[piece], first, last)
            if len(self._pieces) > 1:
                await asyncio.sleep(0)
        return bounds


class Bounds:
    """The lag of each partition of one group. A partition without a known end is left out."""

    __slots__ = ("begins", "keys", "lags")

    def __init__(self) -> None:
        self.keys: list[Partition] = []
        self.begins: list[int] = []
        """For each partition: the offset of the first record that the group has not read. It is the committed offset,
        or the log start offset if that is later.
        """
        self.lags = array("q")
        """For each partition: the number of offsets from `begins` to the end of the log."""

    def add(self, keys: Sequence[Partition], offsets: Sequence[int], first: Sequence[int], last: Sequence[int]) -> None:
        """Add partitions with their committed offsets, and the start and end offsets of their logs. If all start
        offsets are 0, `first` is empty.
        """
        lags = list(map(sub, last, offsets))
        if min(lags, default=0) >= 0 and not any(map(lt, offsets, first)):
            self.keys += keys
            self.begins += offsets
            self.lags.fromlist(lags)
            return
        for key, offset, begin, end in zip(keys, offsets, first or repeat(0), last, strict=False):
            if end != UNKNOWN:
                begins = max(offset, begin)
                self.keys.append(key)
                self.begins.append(begins)
                self.lags.append(max(end - begins, 0))

    def furthest(self, most: int) -> list[int]:
        """The indexes of the `most` partitions with the largest lag, the largest first. Partitions without a lag are
        left out.
        """
        lags = self.lags
        largest = sorted(lags, reverse=True)[:most]
        if not any(largest):
            return []
        least = max(largest[-1], 1)
        above = sorted(compress(count(), map(least.__lt__, lags)), key=lags.__getitem__, reverse=True)
        # Often all partitions lag by the same: then the first ones are enough.
        return [*above, *islice(compress(count(), map(least.__eq__, lags)), len(largest) - len(above))]


def values_at(places: Sequence[int]) -> Callable[[Sequence[int]], Values]:
    """Make a function that returns the values of a list at these positions."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda values: tuple(values[place] for place in places)
