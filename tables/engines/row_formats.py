"""Writing Arrow batches as a table of text, JSON lines, CSV, Parquet or Arrow, batch after batch."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import IO, Any, Final, Protocol

import pyarrow as pa  # type: ignore[import-untyped]

from moldau.tables.refusals import Refused

CELL_MAX: Final = 40
"""Characters of a cell in a table of text."""
TABLE_ROWS_MAX: Final = 1000
"""Rows of a table of text, whose columns are as wide as the widest cell: it is printed as a whole."""
PARTIAL: Final = ".partial"
"""The suffix of a file that is being written."""


class RowWriter(Protocol):
    """Writes batches of one schema."""

    def write_batch(self, batch: pa.RecordBatch) -> None: ...

    def close(self) -> None: ...


@contextmanager
def output_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that gets its name when it is complete. Raises OSError."""
    partial = path.with_name(path.name + PARTIAL)
    try:
        with partial.open("wb") as stream:
            yield stream
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_rows(batches: Iterable[pa.RecordBatch], schema: pa.Schema, kind: str, stream: IO[bytes]) -> int:
    """Write all batches to a stream in one of the formats of `WRITERS`. Returns the number of rows. Raises OSError and
    as the batches.
    """
    count = 0
    writer = WRITERS[kind](schema, stream)
    try:
        for batch in batches:
            writer.write_batch(batch)
            count += batch.num_rows
    finally:
        writer.close()
    return count


class JsonLines:
    """An object a row, with the names of the columns."""

    def __init__(self, schema: pa.Schema, stream: IO[bytes]) -> None:
        self._stream = stream

    def write_batch(self, batch: pa.RecordBatch) -> None:
        lines = (json.dumps(row, default=json_value, ensure_ascii=False) for row in shown_rows(batch))
        self._stream.write("".join(f"{line}\n" for line in lines).encode())

    def close(self) -> None:
        self._stream.flush()


class CommaSeparated:
    """A line of names, and a line for each row. Bytes and nested values are texts as in JSON lines."""

    def __init__(self, schema: pa.Schema, stream: IO[bytes]) -> None:
        from pyarrow.csv import CSVWriter  # type: ignore[import-untyped]

        self._kinds = [field.type if is_plain(field.type) else pa.string() for field in schema]
        self._schema = pa.schema(list(zip(schema.names, self._kinds, strict=True)))
        self._writer = CSVWriter(stream, self._schema)

    def write_batch(self, batch: pa.RecordBatch) -> None:
        columns = [
            column if is_plain(column.type) else pa.array(map(text_of, shown_values(column)), pa.string())
            for column in batch.columns
        ]
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def close(self) -> None:
        self._writer.close()


class TextTable:
    """Columns of text under their names, printed at the end."""

    def __init__(self, schema: pa.Schema, stream: IO[bytes]) -> None:
        self._stream = stream
        self._names = schema.names
        self._rows: list[list[str]] = []
        self._left_out = 0

    def write_batch(self, batch: pa.RecordBatch) -> None:
        kept = batch.slice(0, TABLE_ROWS_MAX - len(self._rows))
        self._left_out += batch.num_rows - kept.num_rows
        self._rows += [[shortened(text_of(row[name])) for name in self._names] for row in shown_rows(kept)]

    def close(self) -> None:
        widths = [max(map(len, cells)) for cells in zip(self._names, *self._rows, strict=True)]
        lines = [self._names, ["-" * width for width in widths], *self._rows]
        for cells in lines:
            padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
            self._stream.write(f"{'  '.join(padded).rstrip()}\n".encode())
        if self._left_out:
            self._stream.write(f"and {self._left_out:,} more rows\n".encode())
        self._stream.flush()


def parquet_writer(schema: pa.Schema, stream: IO[bytes]) -> RowWriter:
    """Parquet, compressed by zstd."""
    from pyarrow.parquet import ParquetWriter  # type: ignore[import-untyped]

    writer: RowWriter = ParquetWriter(stream, schema, compression="zstd")
    return writer


def arrow_writer(schema: pa.Schema, stream: IO[bytes]) -> RowWriter:
    """A stream of Arrow's interprocess format."""
    writer: RowWriter = pa.ipc.new_stream(stream, schema)
    return writer


WRITERS: Final[dict[str, Callable[[pa.Schema, IO[bytes]], RowWriter]]] = {
    "table": TextTable,
    "jsonl": JsonLines,
    "csv": CommaSeparated,
    "parquet": parquet_writer,
    "arrow": arrow_writer,
}


def is_plain(kind: pa.DataType) -> bool:
    """Whether CSV has values of a type as they are."""
    return not (pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def shown_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows as values of Python, by the names of the columns."""
    columns = [shown_values(column) for column in batch.columns]
    return [dict(zip(batch.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def shown_values(column: pa.Array) -> list[Any]:
    """A column as values of Python. Times past the year 9999, which Python does not have, are numbers."""
    try:
        return list(column.to_pylist())
    except OverflowError:
        if not pa.types.is_timestamp(column.type):
            raise
        return [shown_time(each) for each in column]


def shown_time(value: pa.Scalar) -> object:
    """A time as a value of Python; past the year 9999 its number of units since the epoch."""
    try:
        return value.as_py()
    except OverflowError:
        return value.value


def json_value(value: object) -> object:
    """A value that JSON does not have: bytes are text where they are UTF-8, else an object with their base64; dates and
    times are ISO 8601, decimals text.
    """
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    raise Refused(f"{type(value).__name__} has no form in JSON")


def text_of(value: object) -> str | None:
    """A value as one text: JSON, where it is not a text already; None for null."""
    if value is None:
        return None
    shown = json_value(value) if isinstance(value, bytes | datetime | date | time | Decimal) else value
    return shown if isinstance(shown, str) else json.dumps(shown, default=json_value, ensure_ascii=False)


def shortened(text: str | None) -> str:
    """A cell of a table of text, on one line."""
    if text is None:
        return "null"
    line = "".join(each if each.isprintable() else "·" for each in text)
    return line if len(line) <= CELL_MAX else f"{line[: CELL_MAX - 1]}…"
