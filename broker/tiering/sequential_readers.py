"""Which readers of remote storage are sequential: a fetch goes on where an earlier one has ended."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

PLACES_MAX: Final = 10_000
"""Places at which a reader may go on; those noted longest ago are forgotten first."""


class ReaderPlace(NamedTuple):
    """Where a reader may go on."""

    topic_id: bytes
    partition: int
    offset: int


class Served(NamedTuple):
    """How a reader came to a place."""

    streak: int
    """The number of reads in a row that led here."""
    segment_id: bytes
    """The segment of the last read."""
    position: int
    """Where the last read ended in that segment."""


class SequentialReaders:
    """Readers are not told apart: whichever goes on at a place is the one that came there."""

    def __init__(self) -> None:
        self._places: OrderedDict[ReaderPlace, Served] = OrderedDict()

    def served(self, at: ReaderPlace, next_offset: int, segment_id: bytes, end_position: int) -> int:
        """A fetch at a place was answered up to an offset; how many fetches in a row it was, itself included."""
        before = self._places.get(at)
        streak = before.streak + 1 if before is not None else 1
        place = at._replace(offset=next_offset)
        known = self._places.pop(place, None)
        self._places[place] = Served(max(streak, known.streak if known else 0), segment_id, end_position)
        while len(self._places) > PLACES_MAX:
            self._places.popitem(last=False)
        return streak

    def at(self, place: ReaderPlace) -> Served | None:
        """How a reader came here; None for one that begins here."""
        return self._places.get(place)
