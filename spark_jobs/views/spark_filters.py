"""The predicates of Spark that the source takes over: bounds on partition, offset and timestamp.

Spark offers the predicates that compare a column with a value, all of which must hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from moldau.tables.planning.pushed_filters import EVERYTHING, PushedFilters, number_of

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter


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
        self.pushed = self.pushed.with_partitions(value for value in values if isinstance(value, int))
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
