"""The lag of a group from offsets alone: an upper bound for each partition, the difference of two offsets.

There may be 500,000 offsets in a sample, so what is done for each of them is done by functions in C.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Mapping, Sequence
from itertools import repeat
from operator import sub
from typing import Final

Partition = tuple[str, int]
UNKNOWN: Final = -1 << 62
"""Stands for the end of a log whose leader does not tell it."""


class Bounds:
    """The partitions of one group, which are added in pieces; those whose ends are not known are left out."""

    __slots__ = ("begins", "keys", "lags")

    def __init__(self) -> None:
        self.keys: list[Partition] = []
        self.begins = array("q")
        """The next offset that the group reads of each."""
        self.lags = array("q")
        """The offsets from there to the end of the log."""

    def add(
        self,
        keys: Sequence[Partition],
        offsets: Sequence[int],
        first: Mapping[Partition, int],
        last: Mapping[Partition, int],
    ) -> None:
        """Add partitions with their committed offsets. `first`: the first offsets of the logs that do not begin at 0;
        `last`: the ends of the logs.
        """
        lags = list(map(sub, map(last.get, keys, repeat(UNKNOWN)), offsets))
        if min(lags, default=0) >= 0 and first.keys().isdisjoint(keys):
            self.keys += keys
            self.begins.extend(offsets)
            self.lags.extend(lags)
            return
        for key, offset in zip(keys, offsets, strict=True):
            end = last.get(key)
            if end is not None:
                begin = max(offset, first.get(key, 0))
                self.keys.append(key)
                self.begins.append(begin)
                self.lags.append(max(end - begin, 0))

    def furthest(self, most: int) -> list[int]:
        """The places of the partitions that are furthest behind, `most` of them, the furthest one first."""
        lags = self.lags
        least = min(heapq.nlargest(most, lags), default=0)
        places = [place for place, lag in enumerate(lags) if lag >= least and lag] if any(lags) else []
        return sorted(places, key=lags.__getitem__, reverse=True)[:most]
