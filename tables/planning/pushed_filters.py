"""The predicates of a query that are pushed down into the read: bounds on partition, offset and timestamp.

A row must satisfy all of them. They are evaluated exactly: the planner leaves out partitions, offsets and segments, and
the tasks leave out rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from moldau.tables.origins.port import PartitionOrigin, StoredSegment
from moldau.tables.planning.bounds import OffsetRange

ALL_VALUES: Final = (-(1 << 63), 1 << 63)


@dataclass(frozen=True, slots=True)
class PushedFilters:
    """Half-open ranges for the values of three columns, and the set of wanted partitions. A row must satisfy all of
    them."""

    numbers: tuple[int, int] = ALL_VALUES
    """The range of partition numbers."""
    partitions: frozenset[int] | None = None
    """The partitions that an IN predicate names; None means all."""
    offsets: tuple[int, int] = ALL_VALUES
    times_us: tuple[int, int] = ALL_VALUES
    """The range of timestamps in microseconds since the epoch."""

    def accepts_partition(self, partition: int) -> bool:
        is_named = self.partitions is None or partition in self.partitions
        return is_named and self.numbers[0] <= partition < self.numbers[1]

    def clip_offset_range(self, offset_range: OffsetRange) -> OffsetRange:
        """Return the range without the offsets that cannot satisfy the predicates."""
        start = min(max(offset_range.start_offset, self.offsets[0]), offset_range.end_offset)
        return OffsetRange(offset_range.view, start, max(start, min(offset_range.end_offset, self.offsets[1])))

    def is_too_old(self, offer: PartitionOrigin, segment: StoredSegment) -> bool:
        """Whether all records of a segment are before the first wanted timestamp."""
        if self.times_us[0] <= 0:
            return False
        latest = offer.largest_timestamp(segment)
        return latest is not None and latest * 1000 < self.times_us[0]

    def with_range(self, column: str, start: int, end: int) -> PushedFilters:
        """Return the filters, restricted further to values in [start, end) of a column: `partition`, `offset` or
        `timestamp`."""
        if column == "partition":
            return replace(self, numbers=intersection(self.numbers, start, end))
        if column == "offset":
            return replace(self, offsets=intersection(self.offsets, start, end))
        return replace(self, times_us=intersection(self.times_us, start, end))

    def with_partitions(self, numbers: Iterable[int]) -> PushedFilters:
        """Return the filters, restricted further to these partitions."""
        wanted = frozenset(numbers)
        return replace(self, partitions=wanted if self.partitions is None else self.partitions & wanted)


def intersection(before: tuple[int, int], start: int, end: int) -> tuple[int, int]:
    return max(before[0], start), min(before[1], end)
