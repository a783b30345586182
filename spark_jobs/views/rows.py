"""Rows made in Python, as Arrow batches, for tables that are small compared with the records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeAlias

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

Row: TypeAlias = tuple[object, ...]
"""The values of all columns of a table."""
ROWS_MAX: Final = 10_000
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def row_batches(rows: Iterable[Row], schema: StructType, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows as Arrow batches with some of the columns."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    types = to_arrow_schema(schema, timezone="UTC")
    for some in batched(rows, ROWS_MAX):
        arrays = [pa.array(values, field.type) for values, field in zip(zip(*some, strict=True), types, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=types).select(list(columns))


def batched(rows: Iterable[Row], count: int) -> Iterator[tuple[Row, ...]]:
    """Groups of `count` rows; the last one may have fewer."""
    iterator = iter(rows)
    while some := tuple(islice(iterator, count)):
        yield some


def time_of(milliseconds: int | None) -> datetime | None:
    """A time as a value of Arrow's timestamp type; None for -1, which means no time."""
    return None if milliseconds is None or milliseconds < 0 else EPOCH + timedelta(milliseconds=milliseconds)


class RowsReader(DataSourceReader):
    """The reader of rows that are made on the driver and sent to the tasks."""

    def __init__(self, schema: StructType, columns: Sequence[str]) -> None:
        self._schema = schema
        self._columns = tuple(columns)

    def rows(self) -> Iterator[Row]:
        """The rows; called on the driver."""
        raise AssertionError("a table of rows makes them")

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(some) for some in batched(self.rows(), ROWS_MAX)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return row_batches(partition.value or (), self._schema, self._columns)
