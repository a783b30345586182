"""Converts rows that are made in Python into Arrow batches, for tables that are small compared with the records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeAlias

from moldau.tables.decoding.times import TIME_MS_MAX

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

Row: TypeAlias = tuple[object, ...]
"""A row: the values of all columns of a table."""
ROWS_MAX: Final = 10_000


def row_batches(rows: Iterable[Row], schema: pa.Schema, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield rows as Arrow batches with some of the columns of a schema."""
    import pyarrow as pa

    for some in batched(rows, ROWS_MAX):
        arrays = [pa.array(values, field.type) for values, field in zip(zip(*some, strict=True), schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema).select(list(columns))


def batched(rows: Iterable[Row], count: int) -> Iterator[tuple[Row, ...]]:
    """Yield groups of `count` rows; the last group may have fewer."""
    iterator = iter(rows)
    while some := tuple(islice(iterator, count)):
        yield some


def time_of(milliseconds: int | None) -> int | None:
    """Convert a time (ms) into a value of Arrow's timestamp type (microseconds), at most `TIME_MS_MAX`. Returns None
    for None and for a negative time, which means that there is none."""
    return min(milliseconds, TIME_MS_MAX) * 1000 if milliseconds is not None and milliseconds >= 0 else None
