"""Writes Arrow record batches in one of five formats: a table of text, JSON lines, CSV, Parquet or Arrow.

Parquet and Arrow have the values as they are. In the three formats of text, a time in the years 1 to 9999 is written in
ISO 8601, and any other time as its number of units (microseconds, for the tables of Moldau) since the epoch.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import IO, Any, Final, Protocol

import pyarrow as pa  # type: ignore[import-untyped]

from moldau.tables.refusals import Refused
from moldau.tables.values.column_decoding import FIELDS_FORM, JSON_FORM
from moldau.tables.values.exact_json import exact_number, exact_text
from moldau.tables.values.json_types import OTHERS
from moldau.tables.values.parquet_statistics import columns_with_statistics

CELL_MAX: Final = 40
"""The most characters of a cell in a table of text."""
TABLE_ROWS_MAX: Final = 1000
"""The most rows of a table of text. They are kept until the end, because each column is as wide as its widest cell."""
PARTIAL: Final = ".partial"
"""The suffix of an output file that is not complete yet."""


class RowWriter(Protocol):
    """Writes record batches of one schema to a stream."""

    def write_batch(self, batch: pa.RecordBatch) -> None: ...

    def close(self) -> None: ...


@contextmanager
def output_file(path: Path) -> Iterator[IO[bytes]]:
    """Open an output file under a temporary name, and rename it once it is complete. A device or a pipe, such as
    /dev/stdout, is opened itself. If the path is a symbolic link, the file to which it points is replaced. Raises
    OSError."""
    if path.exists() and not path.is_file():
        with path.open("wb") as stream:
            yield stream
        return
    complete = path.resolve()
    partial = complete.with_name(complete.name + PARTIAL)
    try:
        with partial.open("wb") as stream:
            yield stream
        partial.replace(complete)
    except FileNotFoundError as problem:
        if problem.filename != str(partial):
            raise
        raise FileNotFoundError(problem.errno, problem.strerror, str(path)) from None
    finally:
        partial.unlink(missing_ok=True)


def write_rows(batches: Iterable[pa.RecordBatch], schema: pa.Schema, kind: str, stream: IO[bytes]) -> int:
    """Write all record batches to a stream, in the format `kind`, one of `WRITERS`. Returns the number of rows. Raises
    OSError, and what the iteration over the batches raises."""
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
    """Writes a JSON object for each row, with the column names as its names. Decoded values become parts of the object.
    Raises `Refused` if two columns have the same name."""

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
            row[name] = None if row[name] is None else json.loads(row[name], parse_float=exact_number)
        for name in self._structs:
            row[name] = with_parsed_others(row[name])
        return json_text(row)

    def close(self) -> None:
        self._stream.flush()


class CommaSeparatedWriter:
    """Writes CSV: a line of column names, and a line for each row. Each field of a value with a schema is a column of
    its own. Bytes and nested values are written as in JSON lines."""

    def __init__(self, schema: pa.Schema, stream: IO[bytes]) -> None:
        self._stream = stream
        schema = with_field_columns(pa.RecordBatch.from_pylist([], schema)).schema
        self._write(pa.schema([(name, pa.string()) for name in schema.names]).empty_table(), has_names=True)

    def write_batch(self, batch: pa.RecordBatch) -> None:
        batch = with_field_columns(batch)
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
    """Writes the rows as a table of aligned text, when it is closed. Each field of a value with a schema is a column of
    its own."""

    def __init__(self, schema: pa.Schema, stream: IO[bytes]) -> None:
        self._stream = stream
        self._names = with_field_columns(pa.RecordBatch.from_pylist([], schema)).schema.names
        self._rows: list[list[str]] = []
        self._left_out = 0

    def write_batch(self, batch: pa.RecordBatch) -> None:
        kept = with_field_columns(batch.slice(0, TABLE_ROWS_MAX - len(self._rows)))
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

    statistics = columns_with_statistics(schema)
    writer: RowWriter = ParquetWriter(stream, schema, compression="zstd", write_statistics=statistics)
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


def with_field_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with the fields of values with a schema as columns `value.name`, instead of the struct. A field
    is null if the value is null."""
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


def with_parsed_others(value: Any) -> Any:
    """Parse the JSON text in each field `OTHERS` of a decoded value, at each depth, and return the value with
    `ExactNumber`s. Such a field has the properties that the schema does not name."""
    if isinstance(value, dict):
        return {
            name: json.loads(each, parse_float=exact_number)
            if name == OTHERS and each is not None
            else with_parsed_others(each)
            for name, each in value.items()
        }
    return [with_parsed_others(each) for each in value] if isinstance(value, list | tuple) else value


def is_plain(column: pa.Array) -> bool:
    """Whether PyArrow can write the values of a column to CSV without a conversion."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return all(isinstance(each, datetime | None) for each in shown_values(least_and_largest(column)))
    return pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind) or is_text(kind)


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def least_and_largest(column: pa.Array) -> pa.Array:
    """An array with the smallest and the largest value of a column."""
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    found = pc.min_max(column)
    return pa.array([found["min"], found["max"]], column.type)


def shown_rows(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """The rows of a batch as tuples of Python objects; see `shown_value`."""
    return zip(*(shown_values(column) for column in batch.columns), strict=True)


def shown_values(column: pa.Array) -> list[Any]:
    """The values of a column as Python objects; see `shown_value`."""
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):
        return [shown_value(each) for each in column]


def shown_value(value: pa.Scalar) -> Any:
    """Convert an Arrow value into a Python object. A time that Python cannot represent (past the year 9999, or in
    nanoseconds) becomes its number of units, at each depth."""
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
    """Write a Python value as JSON."""
    try:
        written = json.dumps(value, default=json_default, ensure_ascii=False, allow_nan=False)
    except ValueError:  # A number that JSON does not have.
        written = json.dumps(with_finite_numbers(value), default=json_default, ensure_ascii=False, allow_nan=False)
    return exact_text(written)


def with_finite_numbers(value: Any) -> Any:
    """Return the value with the texts NaN, Infinity and -Infinity in place of the floats that JSON does not have, at
    each depth."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: with_finite_numbers(each) for name, each in value.items()}
    return [with_finite_numbers(each) for each in value] if isinstance(value, list | tuple) else value


def json_default(value: object) -> object:
    """Convert a value that Python's `json` cannot write: the `default` of `json.dumps`. Bytes become text if they are
    UTF-8, or else an object with their base64. Dates, times and durations become ISO 8601. A decimal without a
    fraction, such as a sum, becomes a number, any other decimal a text.
    """
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return f"PT{Decimal(value // timedelta(microseconds=1)).scaleb(-6).normalize():f}S"
    if isinstance(value, Decimal):
        return int(value) if value.as_tuple().exponent == 0 else str(value)
    raise Refused(f"{type(value).__name__} has no form in JSON")


def text_of(value: object) -> str | None:
    """Return a value as text: a text unchanged, any other value as JSON; None for null."""
    if value is None:
        return None
    shown = (
        json_default(value)
        if isinstance(value, bytes | datetime | date | time | timedelta | Decimal)
        else with_finite_numbers(value)
    )
    return shown if isinstance(shown, str) else json_text(shown)


def shortened(text: str | None) -> str:
    """Return the text of a cell on one line, cut to `CELL_MAX` characters."""
    if text is None:
        return "null"
    line = "".join(each if each.isprintable() else "·" for each in text)
    return line if len(line) <= CELL_MAX else f"{line[: CELL_MAX - 1]}…"
