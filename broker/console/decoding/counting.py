"""Counts the records in batches that a read_committed consumer receives."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.messages.fetch import AbortedTransaction
from moldau.protocol.primitives import BytesLike
from moldau.protocol.record_batch import BatchHeader
from moldau.protocol.record_reader import records_of

EXPANDED_SIZE_MAX: Final = 1 << 24
"""The most bytes to which a batch may decompress if its records have to be decoded."""


class OffsetSet:
    """A set of offsets. It is made from half-open ranges, which are in ascending order and do not overlap."""

    def __init__(self, ranges: Sequence[tuple[int, int]] = ()) -> None:
        self._edges = [edge for each in ranges for edge in each]
        self._counts = list(accumulate((end - first for first, end in ranges), initial=0))

    def __contains__(self, offset: int) -> bool:
        return bisect_right(self._edges, offset) % 2 == 1

    def count(self, begin: int, end: int) -> int:
        """The number of offsets in the set from `begin` up to `end` (exclusive)."""
        return self._count_below(end) - self._count_below(begin)

    def _count_below(self, offset: int) -> int:
        place = bisect_right(self._edges, offset)
        return self._counts[place // 2] + (offset - self._edges[place - 1] if place % 2 else 0)


NO_OFFSETS: Final = OffsetSet()


@dataclass(slots=True)
class RecordCount:
    """The state of a count of records, from `offset` (all before it are counted) to `end`."""

    offset: int
    """The next offset to examine."""
    end: int
    finished: OffsetSet = NO_OFFSETS
    """Offsets that are left out of the count."""
    records: int = 0
    first_ms: int | None = None
    """The timestamp of the first record that was counted; None if there was none."""

    @property
    def offsets_left(self) -> int:
        """The number of offsets that are not examined yet and may be records."""
        if self.offset >= self.end:
            return 0
        return self.end - self.offset - self.finished.count(self.offset, self.end)


class RecordsNeeded(Exception):
    """Raised if the header of a batch is not enough to count its records."""


def count_batches(
    counted: RecordCount,
    records: BytesLike,
    aborted: Iterable[AbortedTransaction],
    *,
    decodes: bool = True,
    dates_roughly: bool = False,
) -> None:
    """Count the records that a read_committed consumer receives, in whole batches, from `counted.offset` to
    `counted.end`. The result is in `counted`. With `dates_roughly` the timestamp of the first counted record may be
    that of an earlier record of the same batch, so that the batch need not be decoded.

    Raises `MalformedMessage`. If `decodes` is False, raises `RecordsNeeded` at a batch whose records would have to be
    decoded; `counted` then has the batches before it.
    """
    open_aborts: dict[int, list[int]] = {}
    for each in sorted(aborted, key=lambda each: each.first_offset):
        open_aborts.setdefault(each.producer_id, []).append(each.first_offset)
    for position, header in iterate_batches(records):
        if header.base_offset >= counted.end:
            counted.offset = counted.end
            return
        if header.last_offset < counted.offset:
            continue
        firsts = open_aborts.get(header.producer_id)
        is_aborted = bool(firsts) and header.is_transactional and firsts is not None and firsts[0] <= header.last_offset
        if header.is_control:
            if is_aborted and firsts is not None:
                firsts.pop(0)  # The marker ends the aborted transaction.
        elif not is_aborted:
            _count_batch(counted, records, position, header, decodes, dates_roughly)
        counted.offset = header.next_offset


def _count_batch(
    counted: RecordCount, records: BytesLike, position: int, header: BatchHeader, decodes: bool, dates_roughly: bool
) -> None:
    begin, end = max(header.base_offset, counted.offset), min(header.next_offset, counted.end)
    left_out = counted.finished.count(begin, end)
    if header.records_count <= 0 or left_out == end - begin:
        return
    is_whole = end - begin == header.last_offset_delta + 1 and not left_out
    is_dense = header.records_count == header.last_offset_delta + 1
    is_log_append_time = bool(header.timestamp_type)
    has_first_ms = not is_log_append_time and header.delete_horizon_ms is None
    timestamp = header.base_timestamp if has_first_ms else header.max_timestamp
    is_dated = (
        dates_roughly
        or counted.first_ms is not None
        or is_log_append_time
        or (is_whole and header.delete_horizon_ms is None)
    )
    if is_dated and (is_whole or is_dense):
        counted.records += header.records_count if is_whole else end - begin - left_out
    elif not decodes:
        raise RecordsNeeded
    else:
        first_ms = None
        for each in records_of(records, position, header, size_max=EXPANDED_SIZE_MAX):
            if begin <= each.offset < end and each.offset not in counted.finished:
                counted.records += 1
                if first_ms is None:
                    first_ms = each.timestamp
        if first_ms is None:
            return
        timestamp = first_ms
    if counted.first_ms is None:
        counted.first_ms = timestamp
