"""The rows of a table from the records of a topic: the raw columns, or the values decoded by a registry's schemas.

| column | type | |
|---|---|---|
| `key` | binary | |
| `partition`, `offset`, `timestamp` | int, long, timestamptz | where the record stands; never null |
| `headers` | list of (key, value) | if they are asked for |
| `value` | binary | or, with a registry, the type of the value's schema: the fields of a record are those of a struct |

A record that does not fit is a `Misfit`: its value is not framed, has no schema, or does not have the type that the
column has evolved to; or its timestamp is in no year that a table can have.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from moldau.tables.decoding.decoded_rows import COLUMN_TYPES
from moldau.tables.decoding.times import TIME_MS_MAX
from moldau.tables.values.decoders import NOT_HELD, FramedValues, decoded
from moldau.tables.values.registry import Schema, SchemaSource, ValueNotDecoded, message_path, unframed
from moldau.tables.values.shapes import Shape, shape_of
from moldau.tables.values.value_types import TypesDiffer, merged_type, type_of

PLACE: Final = ("partition", "offset", "timestamp")
"""The columns that say where and when a record was written; never null."""
TIMES_US: Final = (-62_135_596_800_000_000, 253_402_300_799_999_999)
"""The first and the last microsecond of a `datetime`, the years 1 to 9999: pyiceberg describes files by such values."""
TYPES_MAX: Final = 1_000
"""The most types of values that are remembered: a frame can name any path, also one that its schema does not have."""
READ_COLUMNS: Final = ("key", *PLACE, "value")
"""The columns of records that a table needs, without headers."""


class Misfit(NamedTuple):
    """A record that is not a row of the table."""

    row: int
    """Its position in its batch."""
    reason: str


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a batch, and the records that are none."""

    batch: pa.RecordBatch
    misfits: Sequence[Misfit] = ()


def undated(batch: pa.RecordBatch) -> list[Misfit]:
    """The records whose timestamps are in no year of a `datetime`. A producer that takes micro- or nanoseconds for
    milliseconds writes such ones; of the latter the reader gives the nearest time that its column holds.
    """
    times_us = batch.column("timestamp").cast(pa.int64())
    is_dated = pc.and_(pc.greater_equal(times_us, TIMES_US[0]), pc.less_equal(times_us, TIMES_US[1]))
    found = []
    for row in pc.indices_nonzero(pc.invert(is_dated)).to_pylist():
        time_ms = times_us[row].as_py() // 1000
        shown = f"{time_ms} ms" + (", or one past it," if abs(time_ms) >= TIME_MS_MAX else "")
        found.append(Misfit(row, f"the timestamp {shown} is not in one of the years 1 to 9999"))
    return found


def read_columns(*, has_headers: bool) -> list[str]:
    """The columns of records from which rows are made."""
    return [*READ_COLUMNS[:-1], *(["headers"] if has_headers else []), READ_COLUMNS[-1]]


def raw_schema(names: Sequence[str]) -> pa.Schema:
    """Columns of a table of raw values."""
    return pa.schema([pa.field(name, COLUMN_TYPES[name], nullable=name not in PLACE) for name in names])


def without(batch: pa.RecordBatch, misfits: Sequence[Misfit]) -> pa.RecordBatch:
    """The other records of a batch."""
    if not misfits:
        return batch
    rows = {each.row for each in misfits}
    return batch.filter(pa.array([row not in rows for row in range(batch.num_rows)]))


class RawColumns:
    """Rows as they are read."""

    def __init__(self, names: Sequence[str]) -> None:
        self.schema = raw_schema(names)

    def rows(self, batch: pa.RecordBatch) -> Rows:
        return Rows(pa.RecordBatch.from_arrays([batch.column(name) for name in self.schema.names], schema=self.schema))


class DecodedColumns:
    """Rows with decoded values. The type of the column `value` grows with each schema that is met: `schema` is the
    current one, and a table has to have it before the rows that were made with it.
    """

    def __init__(self, source: SchemaSource, *, has_headers: bool, value_type: pa.DataType | None = None) -> None:
        """`value_type`: the type that the column has in the table; None if the table has no such column yet."""
        self._values = FramedValues(source)
        self._base = raw_schema(read_columns(has_headers=has_headers))
        self._type = value_type
        self._met: dict[tuple[int, ...], Shape | str] = {}
        """What the values of a type become in the column, or why they do not fit. A type is the id of a schema,
        followed for Protobuf by the path of a message in it.
        """

    @property
    def schema(self) -> pa.Schema:
        """The columns; without `value` if no schema was met yet."""
        at = len(self._base) - 1
        return self._base.remove(at) if self._type is None else self._base.set(at, pa.field("value", self._type))

    def rows(self, batch: pa.RecordBatch) -> Rows:
        """Decode a batch of `READ_COLUMNS`. Raises `RegistryNotReached`, and `Refused` if a library is missing: no
        record is known to be a misfit then.
        """
        values = batch.column("value").to_pylist()
        misfits, found = {}, []
        for row, value in enumerate(values):
            try:
                found.append(None if value is None else self._decoded(value))
            except ValueNotDecoded as problem:
                misfits[row] = str(problem)
                found.append(None)
        schema = self.schema
        column = pa.nulls(len(values)) if self._type is None else self._column(found, misfits)
        columns = [column if name == "value" else batch.column(name) for name in schema.names]
        rows = pa.RecordBatch.from_arrays(columns, schema=schema)
        unfit = [Misfit(row, reason) for row, reason in sorted(misfits.items())]
        return Rows(without(rows, unfit), unfit)

    def meet(self, values: pa.Array) -> None:
        """Let the column hold the types that values name, without decoding them. Raises as `rows`."""
        for value in values.to_pylist():
            if value is not None:
                with suppress(ValueNotDecoded):
                    self._shape(*unframed(value))

    def _decoded(self, value: bytes) -> object:
        schema_id, payload = unframed(value)
        shape = self._shape(schema_id, payload)
        if isinstance(shape, str):
            raise ValueNotDecoded(shape)
        return shape(decoded(self._values.decoder(schema_id), payload, schema_id))

    def _shape(self, schema_id: int, payload: memoryview) -> Shape | str:
        """What the values of a type become in the column, or why they do not fit. Raises `ValueNotDecoded`."""
        decoder = self._values.decoder(schema_id)
        path = tuple(message_path(payload)[0]) if decoder.schema.kind == "PROTOBUF" else ()
        shape = self._met.get((schema_id, *path))
        if shape is None:
            if len(self._met) >= TYPES_MAX:
                self._met.clear()
            shape = self._met[(schema_id, *path)] = self._meet(decoder.schema, schema_id, path)
        return shape

    def _meet(self, schema: Schema, schema_id: int, path: Sequence[int]) -> Shape | str:
        """Let the column hold the values of a type. Returns what they become in it, or why they do not fit."""
        try:
            found = type_of(schema, path)
            self._type = found.type if self._type is None else merged_type(self._type, found.type)
        except (TypesDiffer, ValueNotDecoded) as problem:
            return f"schema {schema_id} does not fit the table: {problem}"
        return shape_of(found.type) if found.needs_shaping else _as_it_is

    def _column(self, decoded: list[object], misfits: dict[int, str]) -> pa.Array:
        try:
            return pa.array(decoded, self._type)
        except (pa.ArrowException, *NOT_HELD):
            for row, value in enumerate(decoded):
                try:
                    pa.array([value], self._type)
                except (pa.ArrowException, *NOT_HELD) as problem:
                    misfits[row] = f"the value does not fit the column: {problem}"
                    decoded[row] = None
            return pa.array(decoded, self._type)


def _as_it_is(value: object) -> object:
    return value
