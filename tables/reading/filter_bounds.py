"""The bounds that a filter of PyArrow sets for partition, offset and timestamp, for the plan of a read.

An expression cannot be taken apart from Python. But PyArrow answers whether an expression can be true of rows for which
another expression, a guarantee, is known to hold: in this way a dataset leaves out fragments. So a bound is found by
bisection: the largest x for which no row with an offset up to x can satisfy the filter. Each answer is on the safe
side. A filter that PyArrow does not understand can be true of any row. So can a filter for which it raises an error, as
for a float beside an integer that the float cannot hold. The filter is evaluated on the rows in any case.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.dataset as ds  # type: ignore[import-untyped]
from pyarrow.fs import LocalFileSystem  # type: ignore[import-untyped]

from moldau.tables.planning.pushed_filters import EVERYTHING, PushedFilters
from moldau.tables.refusals import Refused

BOUNDED: Final = {"partition": (0, (1 << 31) - 1), "offset": (0, (1 << 63) - 1), "timestamp": (0, (1 << 63) - 1)}
"""The columns whose bounds leave out a part of a read, with the lowest and the highest value that is tried."""
LISTED_MAX: Final = 1024
"""The longest range of partition numbers in which each one is compared with the filter."""


class FilterBounds:
    """Finds the bounds of one filter over rows with a schema, by asking PyArrow. Raises `Refused` if the filter does
    not fit the schema.
    """

    def __init__(self, wanted: pc.Expression, schema: pa.Schema) -> None:
        self._filter = wanted
        self._schema = schema
        self._format = ds.IpcFileFormat()
        self._files = LocalFileSystem()
        try:
            schema.empty_table().filter(wanted)
        except (pa.ArrowException, TypeError) as problem:
            raise Refused(f"filter: {' '.join(str(problem).split())}") from None

    def needed_columns(self) -> tuple[str, ...]:
        """The columns that the filter refers to."""
        return tuple(name for name in self._schema.names if not self._binds_without(name))

    def pushed(self) -> PushedFilters:
        """The ranges outside of which no row satisfies the filter."""
        found = PushedFilters()
        for name in set(self.needed_columns()) & BOUNDED.keys():
            start, end = self._range_of(name)
            found = found.with_range(name, start, end)
        start, end = found.numbers
        if found.numbers != EVERYTHING and end - start <= LISTED_MAX:
            wanted = (number for number in range(start, end) if self._can_hold(pc.field("partition") == number))
            found = found.with_partitions(wanted)
        return found

    def _range_of(self, name: str) -> tuple[int, int]:
        """Return the half-open range of the values of a column for which the filter can be true."""
        low, high = BOUNDED[name]
        column = pc.field(name)
        kind = self._schema.field(name).type
        start, end = EVERYTHING
        if not self._can_hold(column <= pa.scalar(low, kind)):
            impossible, possible = low, high
            while possible - impossible > 1:
                middle = (possible + impossible) // 2
                if self._can_hold(column <= pa.scalar(middle, kind)):
                    possible = middle
                else:
                    impossible = middle
            start = impossible + 1
        if not self._can_hold(column >= pa.scalar(high, kind)):
            possible, impossible = low - 1, high
            while impossible - possible > 1:
                middle = (possible + impossible) // 2
                if self._can_hold(column >= pa.scalar(middle, kind)):
                    possible = middle
                else:
                    impossible = middle
            end = impossible
        return start, end

    def _can_hold(self, guarantee: pc.Expression) -> bool:
        """Whether the filter can be true of a row of which the guarantee is true."""
        try:
            return bool(self._fragments(self._schema, guarantee))
        except pa.ArrowException:
            return True

    def _binds_without(self, name: str) -> bool:
        schema = pa.schema([field for field in self._schema if field.name != name])
        try:
            self._fragments(schema, pc.scalar(True))
        except pa.ArrowInvalid:
            return False
        return True

    def _fragments(self, schema: pa.Schema, guarantee: pc.Expression) -> list[Any]:
        """Return the fragments that the filter leaves of a dataset with one file, which is never opened."""
        fragment = self._format.make_fragment("/", self._files, partition_expression=guarantee)
        dataset = ds.FileSystemDataset([fragment], schema, self._format, self._files)
        return list(dataset.get_fragments(self._filter))
