"""Reads records from lines, JSON lines, CSV, Parquet and the JSON that `moldau consume` prints."""

from __future__ import annotations

import csv
import io
import json
import select
import sys
from base64 import b64decode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

from moldau.broker.cli.daily.failures import Failure, WrongArguments
from moldau.broker.cli.invocation import Invocation, reason_of
from moldau.protocol.record_builder import RecordHeader
from moldau.tables.client.producer import OutgoingRecord
from moldau.tables.values.exact_json import ExactNumber, exact_number, exact_text

PIECE_SIZE: Final = 1 << 16
IDLE_S: Final = 0.1
"""The time (s) without a new line on standard input after which the records read so far are sent."""
STANDARD_INPUT: Final = "-"
BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
"""The bytes with which editors of Windows begin a file."""
CELL_SIZE_MAX: Final = 1 << 28
"""The most characters of a cell of CSV. Python's own limit is 128 KiB."""
NO_FILE: Final = "{file} is not a file; a value comes by standard input: echo hello | moldau produce TOPIC"
FORMATS_BY_SUFFIX: Final = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".parquet": "parquet"}


@dataclass(frozen=True, slots=True)
class RecordShape:
    """The options by which a line or a row becomes a record."""

    topic: str
    key: bytes | None
    key_separator: bytes | None
    key_field: str | None
    value_field: str | None
    partition: int | None
    headers: tuple[RecordHeader, ...]
    timestamp_ms: int | None
    has_tombstones: bool
    delimiter: bytes | None = None
    """The bytes that end a record of the format `lines`; None for a line end, LF or CR LF."""

    def record(self, key: bytes | None, value: bytes | None) -> OutgoingRecord:
        if self.has_tombstones and not value:
            value = None
        key = self.key if self.key is not None else key
        return OutgoingRecord(self.topic, self.partition, key, value, self.headers, self.timestamp_ms)


def kind_of(file: str, given: str | None) -> str:
    """The format of a file: `given` if it is not None, otherwise the format of the file's extension, or lines."""
    if given is not None:
        return given
    return next((kind for ending, kind in FORMATS_BY_SUFFIX.items() if file.lower().endswith(ending)), "lines")


def records_of(
    file: str, kind: str, shape: RecordShape, invocation: Invocation, idle: Callable[[], None]
) -> Iterator[OutgoingRecord]:
    """Read the records of a file. `idle` is called while standard input has no further line. Raises `CommandError`."""
    if kind == "parquet":
        invocation.require(("pyarrow",), "arrow")
        yield from _rows_of_parquet(file, shape)
        return
    read = {"lines": _of_line, "jsonl": _of_json, "records": _of_record}.get(kind)
    with _opened(file) as stream:
        if kind == "file":
            yield shape.record(None, stream.read())
            return
        if read is None:
            yield from _rows_of_csv(file, stream, shape)
            return
        for number, line in enumerate(_lines(stream, idle, shape.delimiter), 1):
            try:
                yield read(line, shape)
            except ValueError as problem:
                raise Failure(f"{_name(file)}, line {number}: {problem}") from None
            except RecursionError:
                raise Failure(f"{_name(file)}, line {number}: its JSON is nested too deeply") from None


def _opened(file: str) -> BinaryIO:
    if file == STANDARD_INPUT:
        return open(sys.stdin.fileno(), "rb", buffering=0, closefd=False)
    try:
        return open(file, "rb", buffering=0)  # A buffer would keep the lines of a pipe until it is full.
    except FileNotFoundError:
        raise WrongArguments(NO_FILE.format(file=file)) from None
    except OSError as problem:
        raise WrongArguments(f"{file} cannot be read: {problem.strerror}") from None


def _name(file: str) -> str:
    return "standard input" if file == STANDARD_INPUT else file


def _lines(stream: BinaryIO, idle: Callable[[], None], delimiter: bytes | None = None) -> Iterator[bytes]:
    """Read lines, without their line ends, or the texts that `delimiter` ends. The last one may lack its end. `idle`
    is called while the stream has no further line.
    """
    held, end = b"", delimiter or b"\n"
    while True:
        if not select.select([stream], [], [], IDLE_S)[0]:
            idle()
            select.select([stream], [], [])
        piece = stream.read(PIECE_SIZE)
        if not piece:
            break
        *lines, held = (held + piece).split(end)
        for line in lines:
            yield line.removesuffix(b"\r") if delimiter is None else line
    if held:
        yield held


def _of_line(line: bytes, shape: RecordShape) -> OutgoingRecord:
    if shape.key_separator is None:
        return shape.record(None, line)
    key, is_pair, value = line.partition(shape.key_separator)
    if not is_pair:
        raise ValueError(f"there is no {shape.key_separator.decode()} between key and value")
    return shape.record(key, value)


def _of_json(line: bytes, shape: RecordShape) -> OutgoingRecord:
    line = line.removeprefix(BYTE_ORDER_MARK)
    if shape.key_field is None and shape.value_field is None:
        _parsed(line)
        return shape.record(None, line)
    row = _parsed(line, exact_number)
    key = None if shape.key_field is None else _exactly_encoded(_field(row, shape.key_field))
    return shape.record(key, line if shape.value_field is None else _exactly_encoded(_field(row, shape.value_field)))


def _parsed(line: bytes, parse_float: Callable[[str], object] | None = None) -> Any:
    try:
        return json.loads(line, parse_float=parse_float)
    except ValueError as problem:
        raise ValueError(f"it is not JSON ({problem})") from None


def _field(row: Any, path: str) -> object:
    """The value of a field of a row. `path` names it, such as customer.id. Raises ValueError if there is no such
    field.
    """
    found = row
    for name in [path] if isinstance(row, dict) and path in row else path.split("."):
        if not isinstance(found, dict) or name not in found:
            known = ", ".join(map(str, row)) if isinstance(row, dict) else "none"
            raise ValueError(f"there is no field {path}; the fields are {known}")
        found = found[name]
    return found


def _as_json(value: object, default: Callable[[Any], object] | None = None) -> bytes:
    """A value as compact JSON. Raises ValueError for a number that JSON does not have, such as NaN."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, default=default, separators=(",", ":")).encode()


def _encoded(value: object, as_json: Callable[[object], bytes] = _as_json) -> bytes | None:
    """A field's value as the bytes of a key or a value: a text in UTF-8, anything else as JSON."""
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else as_json(value)


def _exactly_encoded(value: object) -> bytes | None:
    """What `_encoded` returns, for a field whose numbers keep their digits (`exact_json`)."""
    if value is None or (isinstance(value, str) and not isinstance(value, ExactNumber)):
        return _encoded(value)
    return exact_text(_as_json(value).decode()).encode()


def _of_record(line: bytes, shape: RecordShape) -> OutgoingRecord:
    row = _parsed(line)
    if not isinstance(row, dict) or not {"value", "value_base64"} & set(row):
        raise ValueError("it is not a record as 'moldau consume --json' writes it: there is no value")
    headers: list[RecordHeader] = []
    given = row.get("headers") or []
    if not isinstance(given, list):
        raise ValueError("the headers are a list")
    for each in given:
        if not isinstance(each, dict) or not isinstance(each.get("name"), str):
            raise ValueError("a header has a name and a value")
        headers.append((each["name"], _bytes(each, "value")))
    partition, timestamp = row.get("partition"), row.get("timestamp")
    return OutgoingRecord(
        shape.topic,
        shape.partition if shape.partition is not None else partition if isinstance(partition, int) else None,
        shape.key if shape.key is not None else _bytes(row, "key"),
        _bytes(row, "value"),
        (*headers, *shape.headers),
        shape.timestamp_ms if shape.timestamp_ms is not None else timestamp if isinstance(timestamp, int) else None,
    )


def _bytes(row: dict[str, Any], name: str) -> bytes | None:
    encoded = row.get(f"{name}_base64")
    if encoded is None:
        return _encoded(row.get(name))
    if not isinstance(encoded, str):
        raise ValueError(f"{name}_base64 is a text")
    return b64decode(encoded, validate=True)


def _rows_of_csv(file: str, stream: BinaryIO, shape: RecordShape) -> Iterator[OutgoingRecord]:
    # Bytes that are not UTF-8 are met in their line, when a record is made of it.
    text = io.TextIOWrapper(io.BufferedReader(stream), "utf-8-sig", "surrogateescape", "")  # type: ignore[type-var]
    csv.field_size_limit(CELL_SIZE_MAX)
    reader = csv.reader(text, strict=True)
    try:
        columns = next(reader, None)
        if columns is None:
            return
        check_names(file, columns)
        for cells in reader:
            if not cells:
                continue
            if len(cells) != len(columns):
                raise ValueError(f"there are {len(cells)} cells for {len(columns)} columns")
            yield _of_row(dict(zip(columns, cells, strict=True)), shape)
    except (ValueError, csv.Error) as problem:
        told = "it is not UTF-8" if isinstance(problem, UnicodeError) else problem
        raise Failure(f"{_name(file)}, line {reader.line_num}: {told}") from None


def check_names(file: str, columns: list[str]) -> None:
    """Raise `Failure` if two columns have one name: a row would lose a cell."""
    if len(set(columns)) < len(columns):
        raise Failure(f"{_name(file)}: two columns have one name; the columns are {', '.join(columns)}")


def _of_row(
    row: dict[str, object], shape: RecordShape, as_json: Callable[[object], bytes] = _as_json
) -> OutgoingRecord:
    key = None if shape.key_field is None else _encoded(_field(row, shape.key_field), as_json)
    value = as_json(row) if shape.value_field is None else _encoded(_field(row, shape.value_field), as_json)
    return shape.record(key, value)


def _rows_of_parquet(file: str, shape: RecordShape) -> Iterator[OutgoingRecord]:
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as parquet  # type: ignore[import-untyped]

    from moldau.tables.engines.row_formats import json_default, shown_rows, with_finite_numbers

    def as_json(value: object) -> bytes:
        return _as_json(with_finite_numbers(value), json_default)

    if file == STANDARD_INPUT:
        raise WrongArguments("Parquet is read from a file, not from standard input")
    try:
        with parquet.ParquetFile(file) as table:
            names = table.schema_arrow.names
            check_names(file, names)
            for batch in table.iter_batches(10_000):
                for row in shown_rows(batch):
                    yield _of_row(dict(zip(names, row, strict=True)), shape, as_json)
    except FileNotFoundError:
        raise WrongArguments(NO_FILE.format(file=file)) from None
    except (ValueError, OSError, pa.ArrowException) as problem:
        raise Failure(f"{file}: {reason_of(problem)}") from None
