"""The aborted transactions that overlap a read: a read_committed consumer skips their records."""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from typing import Final

from moldau.storage.log.log_state import LogState
from moldau.storage.log.reading import LogRead
from moldau.storage.segment.segment import Segment
from moldau.storage.segment.transaction_index import AbortedTransaction

FEW: Final = 16
"""The number of aborted transactions up to which those that begin past the end of the read are not filtered out."""
_base_offset = attrgetter("base_offset")
_first_offset = attrgetter("first_offset")


def aborted_transactions(log: LogState, first_offset: int, end_offset: int) -> list[AbortedTransaction]:
    """The aborted transactions with batches in a range of offsets.

    Raises OSError, `CorruptTransactionIndex` among them.
    """
    found: list[AbortedTransaction] = []
    slot = max(0, bisect_right(log.segments, first_offset, key=_base_offset) - 1)
    for segment in log.segments[slot:]:
        more, is_complete = segment.transaction_index.collect(first_offset, end_offset)
        found += more
        if is_complete:
            break
    return found


def aborted_in_read(
    log: LogState, read: LogRead, first_offset: int, end_offset: int, *, waits: bool
) -> list[AbortedTransaction]:
    """The aborted transactions that may overlap the result of a read from `first_offset` on, sorted by first offset.

    The transaction index has the order of the markers, but some clients take the list in the order of the records.
    Raises OSError, `CorruptTransactionIndex` among them; without `waits` also `NotCached`.
    """
    segments = log.segments
    slot = bisect_right(segments, read.base_offset, key=_base_offset) - 1
    if slot + 1 < len(segments):
        end_offset = min(end_offset, segments[slot + 1].base_offset)
    segment = segments[slot]
    if read.slice is not None and segment.transaction_index.count_from(first_offset) > FEW:
        end_offset = min(end_offset, read_end_offset(segment, read.slice.position + read.size, end_offset, waits))
    found = aborted_transactions(log, first_offset, end_offset)
    found.sort(key=_first_offset)
    return found


def read_end_offset(segment: Segment, end_position: int, otherwise: int, waits: bool) -> int:
    """An offset at or past the end of the batches that begin before a position, as close as the offset index allows."""
    later = segment.offset_index.offset_after(end_position - 1, waits=waits)
    return otherwise if later is None else later
