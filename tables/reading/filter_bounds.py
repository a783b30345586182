"""Finds the ranges of partition, offset and timestamp outside which a PyArrow filter matches no row, so that the plan
of a read can leave them out.

Python code cannot inspect a PyArrow expression. But PyArrow can tell whether a filter may match rows for which a given
condition (a guarantee) holds. The lower and the upper bound are each found by bisection with such questions. If PyArrow
cannot decide, or raises an error, the answer is 'may match'. An error is raised, for example, if a float is compared
with an integer that the float cannot hold. A range may thus be too wide, but never too narrow. The filter is still
evaluated on every row that is read.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.dataset as ds  # type: ignore[import-untyped]
from pyarrow.fs import LocalFileSystem  # type: ignore[import-untyped]

from moldau.tables.planning.pushed_filters import ALL_VALUES, PushedFilters
from moldau.tables.refusals import Refused

BOUNDED: Final = {"partition": (0, (1 << 31) - 1), "offset": (0, (1 << 63) - 1), "timestamp": (0, (1 << 63) - 1)}
"""The columns whose bounds can leave out a part of a read, with the lowest and the highest value that is tried."""
LISTED_MAX: Final = 1024
"""The longest range of partition numbers of which each number is tested against the filter."""


class FilterBounds:
    """Finds the bounds that one PyArrow filter sets for rows with a schema. Raises `Refused` if the filter does not fit
    the schema."""

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
        """Return the columns that the filter refers to."""
        return tuple(name for name in self._schema.names if not self._binds_without(name))

    def pushed(self) -> PushedFilters:
        """Return the ranges outside which no row matches the filter. If the range of partitions has at most
        `LISTED_MAX` numbers, each number is tested on its own.
        """
        found = PushedFilters()
        for name in set(self.needed_columns()) & BOUNDED.keys():
            start, end = self._range_of(name)
            found = found.with_range(name, start, end)
        start, end = found.numbers
        if found.numbers != ALL_VALUES and end - start <= LISTED_MAX:
            wanted = (number for number in range(start, end) if self._can_hold(pc.field("partition") == number))
            found = found.with_partitions(wanted)
        return found

    def _range_of(self, name: str) -> tuple[int, int]:
        """Return the half-open range of the values of a column outside which the filter matches no row."""
        low, high = BOUNDED[name]
        column = pc.field(name)
        kind = self._schema.field(name).type
        start, end = ALL_VALUES
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
        """Whether the filter may match a row for which `guarantee` holds."""
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
        """Apply the filter to a dataset of one file, which is never opened, and return its remaining fragments. All
        rows of the file meet the guarantee. The result is empty if the filter matches no such row.
        """
        fragment = self._format.make_fragment("/", self._files, partition_expression=guarantee)
        dataset = ds.FileSystemDataset([fragment], schema, self._format, self._files)
        return list(dataset.get_fragments(self._filter))
