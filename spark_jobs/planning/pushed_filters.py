"""The predicates of a query that the source takes over: bounds on partition, offset and timestamp.

Spark offers the predicates that compare a column with a value, all of which must hold. The source evaluates the
accepted ones exactly: the planner leaves out partitions, offsets and segments, the tasks leave out rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from moldau.spark_jobs.origins.port import PartitionOrigin, StoredSegment
from moldau.spark_jobs.planning.bounds import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
EVERYTHING: Final = (-(1 << 63), 1 << 63)


@dataclass(frozen=True, slots=True)
class PushedFilters:
    """Half-open ranges that the values of three columns lie in, and the partitions that are wanted."""

    numbers: tuple[int, int] = EVERYTHING
    """The range of partition numbers."""
    partitions: frozenset[int] | None = None
    """The partitions that an IN names; None for all."""
    offsets: tuple[int, int] = EVERYTHING
    times_us: tuple[int, int] = EVERYTHING
    """The range of timestamps in microseconds since the epoch."""

    def accepts_partition(self, partition: int) -> bool:
        is_named = self.partitions is None or partition in self.partitions
        return is_named and self.numbers[0] <= partition < self.numbers[1]

    def narrowed(self, wanted: OffsetRange) -> OffsetRange:
        """The offsets of a range that can satisfy the predicates."""
        start = min(max(wanted.start_offset, self.offsets[0]), wanted.end_offset)
        return OffsetRange(wanted.view, start, max(start, min(wanted.end_offset, self.offsets[1])))

    def is_too_old(self, offer: PartitionOrigin, segment: StoredSegment) -> bool:
        """Whether all records of a segment are before the first wanted time."""
        if self.times_us[0] <= 0:
            return False
        latest = offer.largest_timestamp(segment)
        return latest is not None and latest * 1000 < self.times_us[0]

    def with_range(self, column: str, start: int, end: int) -> PushedFilters:
        """The filters, restricted further to the values of a column in [start, end)."""
        if column == "partition":
            return replace(self, numbers=intersection(self.numbers, start, end))
        if column == "offset":
            return replace(self, offsets=intersection(self.offsets, start, end))
        return replace(self, times_us=intersection(self.times_us, start, end))


def intersection(before: tuple[int, int], start: int, end: int) -> tuple[int, int]:
    return max(before[0], start), min(before[1], end)


class FilterReader:
    """Accepts predicates that Spark offers, where the source can evaluate them."""

    def __init__(self) -> None:
        self.pushed = PushedFilters()

    def accept(self, filters: Iterable[Filter]) -> Iterator[Filter]:
        """Accept predicates. Returns those that Spark has to evaluate itself."""
        for each in filters:
            if not self._accepts(each):
                yield each

    def _accepts(self, wanted: Filter) -> bool:
        from pyspark.sql.datasource import In, IsNotNull

        path: tuple[str, ...] = getattr(wanted, "attribute", ())
        if len(path) != 1 or path[0] not in ("partition", "offset", "timestamp"):
            return False
        column = path[0]
        if isinstance(wanted, IsNotNull):
            return True  # the three columns are never null
        if isinstance(wanted, In):
            return column == "partition" and self._accepts_partitions(wanted.value)
        number = number_of(column, getattr(wanted, "value", None))
        values = None if number is None else range_of_filter(wanted, number)
        if values is None:
            return False
        self.pushed = self.pushed.with_range(column, *values)
        return True

    def _accepts_partitions(self, values: Iterable[object]) -> bool:
        numbers = [value for value in values if isinstance(value, int)]
        before = self.pushed.partitions
        wanted = frozenset(numbers) if before is None else before & frozenset(numbers)
        self.pushed = replace(self.pushed, partitions=wanted)
        return True


def range_of_filter(wanted: Filter, number: int) -> tuple[int, int] | None:
    """The half-open range of a comparison; None for any other predicate."""
    from pyspark.sql import datasource as ds

    low, high = EVERYTHING
    if isinstance(wanted, ds.EqualTo | ds.EqualNullSafe):
        return number, number + 1
    if isinstance(wanted, ds.GreaterThan):
        return number + 1, high
    if isinstance(wanted, ds.GreaterThanOrEqual):
        return number, high
    if isinstance(wanted, ds.LessThan):
        return low, number
    if isinstance(wanted, ds.LessThanOrEqual):
        return low, number + 1
    return None


def number_of(column: str, value: object) -> int | None:
    """A value as the number with which it is compared; for a timestamp microseconds since the epoch."""
    if column != "timestamp":
        return value if isinstance(value, int) and not isinstance(value, bool) else None
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    since = value - EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
