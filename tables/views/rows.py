"""Rows made in Python, as Arrow batches, for tables that are small compared with the records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

Row: TypeAlias = tuple[object, ...]
"""The values of all columns of a table."""
ROWS_MAX: Final = 10_000
TIME_MS_MAX: Final = ((1 << 63) - 1) // 1000
"""The last time (ms) that a column of microseconds holds."""


def row_batches(rows: Iterable[Row], schema: pa.Schema, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows as Arrow batches with some of the columns of a schema."""
    import pyarrow as pa

    for some in batched(rows, ROWS_MAX):
        arrays = [pa.array(values, field.type) for values, field in zip(zip(*some, strict=True), schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema).select(list(columns))


def batched(rows: Iterable[Row], count: int) -> Iterator[tuple[Row, ...]]:
    """Groups of `count` rows; the last one may have fewer."""
    iterator = iter(rows)
    while some := tuple(islice(iterator, count)):
        yield some


def time_of(milliseconds: int | None) -> int | None:
    """A time as a value of Arrow's timestamp type, in microseconds: a `datetime` ends with the year 9999, and the times
    of a producer that takes microseconds for milliseconds are past it. None for -1, which means no time, and for what
    does not fit.
    """
    return milliseconds * 1000 if milliseconds is not None and 0 <= milliseconds <= TIME_MS_MAX else None
