"""Detection of sequential readers of remote storage: a fetch begins where an earlier one has ended."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

PLACES_MAX: Final = 10_000
"""The most ends of fetches that are remembered; the oldest are dropped first."""


class ReaderPlace(NamedTuple):
    """An offset of a partition at which a fetch begins or has ended."""

    topic_id: bytes
    partition: int
    offset: int


class Served(NamedTuple):
    """The consecutive fetches of which the last one ended at an offset."""

    streak: int
    """The number of consecutive fetches: each begins where the one before it ended."""
    segment_id: bytes
    """The segment that the last fetch read."""
    position: int
    """The position in the .log object of that segment at which the last fetch ended."""


class SequentialReaders:
    """The offsets at which fetches have ended.

    Clients are not distinguished: any fetch that begins at such an offset continues the fetches that ended there.
    """

    def __init__(self) -> None:
        self._places: OrderedDict[ReaderPlace, Served] = OrderedDict()

    def served(self, at: ReaderPlace, next_offset: int, segment_id: bytes, end_position: int) -> int:
        """Note that the fetch from `at` was answered with the records before `next_offset`, which end at a position in
        a segment's .log object.

        Returns the number of consecutive fetches, including this one.
        """
        before = self._places.get(at)
        streak = before.streak + 1 if before is not None else 1
        place = at._replace(offset=next_offset)
        known = self._places.pop(place, None)
        self._places[place] = Served(max(streak, known.streak if known else 0), segment_id, end_position)
        while len(self._places) > PLACES_MAX:
            self._places.popitem(last=False)
        return streak

    def at(self, place: ReaderPlace) -> Served | None:
        """The fetches that ended at this offset; None where none of the remembered ones did."""
        return self._places.get(place)
