"""Detection of sequential readers of remote storage: a fetch begins where an earlier one has ended."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

PLACES_MAX: Final = 10_000
"""The most places that are remembered; the oldest are dropped first."""


class ReaderPlace(NamedTuple):
    """A place at which a reader may continue."""

    topic_id: bytes
    partition: int
    offset: int


class Served(NamedTuple):
    """The reads that ended at a place."""

    streak: int
    """The number of consecutive reads that led here."""
    segment_id: bytes
    """The segment of the last read."""
    position: int
    """The position of the end of the last read in that segment."""


class SequentialReaders:
    """The remembered places.

    Readers are not distinguished: any fetch from a place continues the reads that ended there.
    """

    def __init__(self) -> None:
        self._places: OrderedDict[ReaderPlace, Served] = OrderedDict()

    def served(self, at: ReaderPlace, next_offset: int, segment_id: bytes, end_position: int) -> int:
        """Note that a fetch at a place was answered up to an offset.

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
        """The reads that ended here; None for a reader that begins here."""
        return self._places.get(place)
