"""Writing Arrow batches as a table of text, JSON lines, CSV, Parquet or Arrow, batch after batch.

Parquet and Arrow have the values as they are. In the three formats of text a time is ISO 8601 in the years 1 to 9999,
and else its number of units (microseconds, for the tables of Moldau) since the epoch.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import IO, Any, Final, Protocol

import pyarrow as pa  # type: ignore[import-untyped]

from moldau.tables.refusals import Refused
from moldau.tables.values.column_decoding import FIELDS_FORM, JSON_FORM
from moldau.tables.values.json_types import OTHERS

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
    """Write all batches to a stream in one of the formats of `WRITERS`. Returns the number of rows. Raises OSError, and
    what the iteration over the batches raises.
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


class JsonLinesWriter:
    """Writes a JSON object for each row, with the names of the columns. Decoded values become a part of the object.
    Raises `Refused` if two columns have the same name.
    """

    def __init__(self, schema: pa.Schema, stream: IO[bytes]) -> None:
        self._stream = stream
        self._decoded = [field.name for field in schema if field.metadata == JSON_FORM]
        self._structs = [field.name for field in schema if field.metadata == FIELDS_FORM]
        for name in schema.names:
            if schema.names.count(name) > 1:
                raise Refused(f"two columns have the name {name}: give each a name of its own (AS)")

    def write_batch(self, batch: pa.RecordBatch) -> None:
        names = batch.schema.names
        lines = (self._line(dict(zip(names, row, strict=True))) for row in shown_rows(batch))
        self._stream.write("".join(f"{line}\n" for line in lines).encode())

    def _line(self, row: dict[str, Any]) -> str:
        for name in self._decoded:
            row[name] = None if row[name] is None else json.loads(row[name])
        for name in self._structs:
            row[name] = with_others(row[name])
        return json_text(row)

    def close(self) -> None:
        self._stream.flush()


class CommaSeparatedWriter:
    """Writes a line of names, and a line for each row. Each field of a value with a schema is a column. Bytes and
    nested values are texts as in JSON lines.
    """

    def __init__(self, schema: pa.Schema, stream: IO[bytes]) -> None:
        self._stream = stream
        schema = with_fields(pa.RecordBatch.from_pylist([], schema)).schema
        self._write(pa.schema([(name, pa.string()) for name in schema.names]).empty_table(), has_names=True)

    def write_batch(self, batch: pa.RecordBatch) -> None:
        batch = with_fields(batch)
        columns = [
            column if is_plain(column) else pa.array(map(text_of, shown_values(column)), pa.string())
            for column in batch.columns
        ]
        self._write(pa.table(columns, batch.schema.names), has_names=False)

    def close(self) -> None:
        self._stream.flush()

    def _write(self, rows: pa.Table, *, has_names: bool) -> None:
        from pyarrow.csv import WriteOptions, write_csv  # type: ignore[import-untyped]

        write_csv(rows, self._stream, WriteOptions(include_header=has_names))


class TextTableWriter:
    """Writes columns of text under their names, when it is closed. Each field of a value with a schema is a column."""

    def __init__(self, schema: pa.Schema, stream: IO[bytes]) -> None:
        self._stream = stream
        self._names = with_fields(pa.RecordBatch.from_pylist([], schema)).schema.names
        self._rows: list[list[str]] = []
        self._left_out = 0

    def write_batch(self, batch: pa.RecordBatch) -> None:
        kept = with_fields(batch.slice(0, TABLE_ROWS_MAX - len(self._rows)))
        self._left_out += batch.num_rows - kept.num_rows
        self._rows += [[shortened(text_of(value)) for value in row] for row in shown_rows(kept)]

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
    """Make a writer of Parquet, compressed by zstd."""
    from pyarrow.parquet import ParquetWriter  # type: ignore[import-untyped]

    writer: RowWriter = ParquetWriter(stream, schema, compression="zstd")
    return writer


def arrow_writer(schema: pa.Schema, stream: IO[bytes]) -> RowWriter:
    """Make a writer of a stream in Arrow's interprocess format."""
    writer: RowWriter = pa.ipc.new_stream(stream, schema)
    return writer


WRITERS: Final[dict[str, Callable[[pa.Schema, IO[bytes]], RowWriter]]] = {
    "table": TextTableWriter,
    "jsonl": JsonLinesWriter,
    "csv": CommaSeparatedWriter,
    "parquet": parquet_writer,
    "arrow": arrow_writer,
}


def with_fields(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with the fields of values of a schema as columns `value.name`, in place of the struct. They are null if
    the value is.
    """
    named: dict[str, pa.Array] = {}
    if all(field.metadata != FIELDS_FORM for field in batch.schema):
        return batch
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if field.metadata == FIELDS_FORM:
            parts = zip(field.type, column.flatten(), strict=True)
            named |= {f"{field.name}.{part.name}": values for part, values in parts}
        else:
            named[field.name] = column
    return pa.RecordBatch.from_pydict(named)


def with_others(value: Any) -> Any:
    """Return a value of a schema in which the properties without a column are JSON values, and not texts of JSON."""
    if isinstance(value, dict):
        return {
            name: json.loads(each) if name == OTHERS and each is not None else with_others(each)
            for name, each in value.items()
        }
    return [with_others(each) for each in value] if isinstance(value, list | tuple) else value


def is_plain(column: pa.Array) -> bool:
    """Whether PyArrow writes the values of a column as they are to CSV."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return all(isinstance(each, datetime | None) for each in shown_values(extremes(column)))
    return pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind) or is_text(kind)


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def extremes(column: pa.Array) -> pa.Array:
    """The smallest and the largest value of a column."""
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    found = pc.min_max(column)
    return pa.array([found["min"], found["max"]], column.type)


def shown_rows(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """The rows as values of Python."""
    return zip(*(shown_values(column) for column in batch.columns), strict=True)


def shown_values(column: pa.Array) -> list[Any]:
    """A column as values of Python; see `shown_value`."""
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):
        return [shown_value(each) for each in column]


def shown_value(value: pa.Scalar) -> Any:
    """Return a value as a Python object. A time that Python cannot represent (past the year 9999, or in nanoseconds)
    becomes its number of units, at each depth.
    """
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        kind = value.type
        if pa.types.is_struct(kind):
            return {name: shown_value(value[name]) for name in value}
        if pa.types.is_map(kind):
            return [(shown_value(each["key"]), shown_value(each["value"])) for each in value.values]
        if pa.types.is_nested(kind):
            return [shown_value(each) for each in value.values]
        return value.value


def json_text(value: Any) -> str:
    """A value as JSON."""
    try:
        return json.dumps(value, default=json_default, ensure_ascii=False, allow_nan=False)
    except ValueError:  # A number that JSON does not have.
        return json.dumps(finite(value), default=json_default, ensure_ascii=False, allow_nan=False)


def finite(value: Any) -> Any:
    """The value with texts (NaN, Infinity, -Infinity) for the floats that JSON does not have, at each depth."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: finite(each) for name, each in value.items()}
    return [finite(each) for each in value] if isinstance(value, list | tuple) else value


def json_default(value: object) -> object:
    """Convert a value that Python's `json` cannot write: the `default` of `json.dumps`. Bytes become text if they are
    UTF-8, or else an object with their base64. Dates and times become ISO 8601. A decimal without a fraction, such as a
    sum, becomes a number, any other decimal a text.
    """
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return int(value) if value.as_tuple().exponent == 0 else str(value)
    raise Refused(f"{type(value).__name__} has no form in JSON")


def text_of(value: object) -> str | None:
    """A value as one text: JSON, if it is not a text already; None for null."""
    if value is None:
        return None
    shown = json_default(value) if isinstance(value, bytes | datetime | date | time | Decimal) else finite(value)
    return shown if isinstance(shown, str) else json_text(shown)


def shortened(text: str | None) -> str:
    """A cell of a table of text, on one line."""
    if text is None:
        return "null"
    line = "".join(each if each.isprintable() else "·" for each in text)
    return line if len(line) <= CELL_MAX else f"{line[: CELL_MAX - 1]}…"
