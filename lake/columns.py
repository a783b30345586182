"""Makes the rows of a table from the records of a topic: raw columns, or keys and values that are decoded in their
forms.

| column | type |
|---|---|
| `key` | binary, or the type of its form (`forms.py`) |
| `partition`, `offset`, `timestamp` | int, long, timestamptz: the place and the time of the record; never null |
| `headers` | list of (key, value), if headers were requested |
| `value` | binary, or the type of its form; for a change event the type of its row |

In a flat table the fields of structs are columns (`flattening.py`). A record that does not fit is a `Misfit`: its key
or value is not of its form, has no schema, or does not have the type that the column has evolved to; or its timestamp
is outside of the years 1 to 9999.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from moldau.lake.flattening import flatten_type
from moldau.lake.forms import DELETION, Form, JsonForm, ValueReading, row_of
from moldau.lake.keys import KEY, check_key_type
from moldau.tables.decoding.decoded_rows import COLUMN_TYPES
from moldau.tables.decoding.times import TIME_MS_MAX
from moldau.tables.values.converters import Converter
from moldau.tables.values.decoders import NOT_HELD
from moldau.tables.values.frames import HEADERS, framed_column
from moldau.tables.values.registry import ValueNotDecoded
from moldau.tables.values.topic_types import SAMPLE_ROWS
from moldau.tables.values.value_types import TypesDiffer, merged_type

PLACE: Final = ("partition", "offset", "timestamp")
"""The columns with the partition, the offset and the timestamp of a record. They are never null."""
TIMES_US: Final = (-62_135_596_800_000_000, 253_402_300_799_999_999)
"""The first and the last microsecond of a `datetime`, in the years 1 to 9999. pyiceberg describes files by `datetime`
values."""
TYPES_MAX: Final = 1_000
"""The most types of values that are remembered. A frame can name any message type, also one that its schema does not
have."""
READ_COLUMNS: Final = ("key", *PLACE, "value")
"""The columns of a table of records, except for headers."""


class Misfit(NamedTuple):
    """A record that does not fit the table, so that it does not become a row."""

    row: int
    """The index of the record in its batch."""
    reason: str


@dataclass(frozen=True, slots=True)
class TableRows:
    """The rows of the table that a batch of records gives, and the records that do not fit."""

    batch: pa.RecordBatch
    deletes: pa.Array
    """For each row, whether it deletes the row of its key."""
    misfits: Sequence[Misfit] = ()


def undated_misfits(batch: pa.RecordBatch) -> list[Misfit]:
    """Find the records whose timestamps are not in the years of a `datetime`. A producer that writes micro- or
    nanoseconds instead of milliseconds makes such timestamps. For nanoseconds the reader returns the nearest time that
    its column can hold."""
    times_us = batch.column("timestamp").to_numpy().view(np.int64)
    is_undated = (times_us < TIMES_US[0]) | (times_us > TIMES_US[1])
    found = []
    for row in np.flatnonzero(is_undated).tolist():
        time_ms = int(times_us[row]) // 1000
        shown = f"{time_ms} ms" + (", or one past it," if abs(time_ms) >= TIME_MS_MAX else "")
        found.append(Misfit(row, f"the timestamp {shown} is not in one of the years 1 to 9999"))
    return found


def have_possible_years(times_us: NDArray[np.int64]) -> bool:
    """Whether all timestamps (microseconds) are in the years of a `datetime`."""
    return not len(times_us) or bool(times_us.min() >= TIMES_US[0] and times_us.max() <= TIMES_US[1])


def read_columns(*, has_headers: bool) -> list[str]:
    """The names of the columns of a table of records."""
    return [*READ_COLUMNS[:-1], *(["headers"] if has_headers else []), READ_COLUMNS[-1]]


def raw_schema(names: Sequence[str]) -> pa.Schema:
    """The Arrow schema of a table with these columns of raw records."""
    return pa.schema([pa.field(name, COLUMN_TYPES[name], nullable=name not in PLACE) for name in names])


def without_misfits(batch: pa.RecordBatch, misfits: Sequence[Misfit]) -> pa.RecordBatch:
    """Return the records of a batch without the misfits."""
    if not misfits:
        return batch
    rows = {each.row for each in misfits}
    return batch.filter(pa.array([row not in rows for row in range(batch.num_rows)]))


class RawColumns:
    """Makes rows with the keys and values as bytes, without decoding them."""

    def __init__(self, names: Sequence[str]) -> None:
        self.schema = raw_schema(names)
        self.read_names: Sequence[str] = names
        """The names of the columns of records from which rows are made."""

    @property
    def samples(self) -> dict[str, Mapping[str, Any]]:
        return {}

    def rows(self, batch: pa.RecordBatch, *, is_by_key: bool = False) -> TableRows:
        """Make the rows for a batch of records. `is_by_key` has no effect, because bytes are not decoded."""
        found = pa.RecordBatch.from_arrays([batch.column(name) for name in self.schema.names], schema=self.schema)
        has_values = "value" in self.schema.names
        return TableRows(
            found, batch.column("value").is_null() if has_values else pa.array(np.zeros(len(found), np.bool_))
        )


class TypedColumn:
    """A column of decoded keys or values. Its type is widened for each kind of value that is met."""

    def __init__(
        self,
        name: str,
        form: Form,
        kind: pa.DataType | None = None,
        *,
        is_enveloped: bool = False,
        is_flat: bool = False,
    ) -> None:
        """`kind`: the type that the column has in the table; for a flat table a struct of its columns. None if the
        table does not have the column yet. `is_enveloped`: the values are change events. `is_flat`: the table is flat.
        """
        self.name = name
        self.type = kind
        self._form = form
        self._is_enveloped = is_enveloped
        self._is_flat = is_flat
        self._met: dict[Hashable, Converter | str] = {}
        """For each kind of value, the function that converts a decoded value for the column, or the reason why such
        values do not fit."""

    @property
    def fields(self) -> list[pa.Field]:
        """The Arrow fields of the table that come from this column: one, or each field of its struct if the table is
        flat; an empty list if no value has determined a type yet."""
        if self.type is None:
            return []
        return list(self.type) if self._is_flat else [pa.field(self.name, self.type)]

    @property
    def json_schema(self) -> Mapping[str, Any] | None:
        """The JSON Schema of the values, if they are plain JSON and a schema is known."""
        return self._form.schema if isinstance(self._form, JsonForm) else None

    @property
    def needed_names(self) -> Sequence[str]:
        """The names of the columns of records from which this column is made."""
        return [self.name, *([HEADERS] if self._form.reads_headers else [])]

    def decode(self, batch: pa.RecordBatch, *, may_become_null: bool = True) -> DecodedColumn:
        """Decode the values of a batch of records. A value that cannot be decoded is a misfit. A value that decodes to
        null is a misfit unless `may_become_null`. Raises `RegistryNotReached`, or `Refused` if a library is missing; in
        both cases the values may be valid."""
        values = self._values(batch)
        self._learn(values)
        misfits, deleted, found = {}, [], []
        for row, value in enumerate(values):
            made = None
            if value is not None:
                try:
                    made = self._made(value)
                except ValueNotDecoded as problem:
                    misfits[row] = str(problem)
                else:
                    if made is None and not may_become_null:
                        misfits[row] = f"the {self.name} is null"
            if made is DELETION:
                deleted.append(row)
                made = None
            found.append(made)
        if self.type is None:
            return DecodedColumn([], misfits, deleted)
        column = self._column(found, misfits)
        return DecodedColumn(column.flatten() if self._is_flat else [column], misfits, deleted)

    def meet(self, batch: pa.RecordBatch) -> None:
        """Widen the type of the column for the values of a batch of records, by the schemas that they name. The values
        are not decoded. Raises what `decode` raises."""
        values = self._values(batch)
        self._learn(values)
        for value in values:
            if value is not None:
                with suppress(ValueNotDecoded):
                    self._converter(self._form.read(value))

    def _values(self, batch: pa.RecordBatch) -> Sequence[bytes | None]:
        headers = batch.column(HEADERS) if self._form.reads_headers else None
        return framed_column(batch.column(self.name), headers, self.name)

    def _learn(self, values: Sequence[bytes | None]) -> None:
        if isinstance(self._form, JsonForm):
            self._form.learn(value for value in values[:SAMPLE_ROWS] if value is not None)

    def _made(self, value: bytes) -> object:
        """Convert a value for the column. Returns `DELETION` for a change event that deletes a row. Raises
        `ValueNotDecoded`.
        """
        read = self._form.read(value)
        convert = self._met.get(read.kind) or self._converter(read)
        if isinstance(convert, str):
            raise ValueNotDecoded(convert)
        made = read.decode(value)
        if self._is_enveloped:
            made = row_of(made)
        return made if made is None or made is DELETION else convert(made)

    def _converter(self, read: ValueReading) -> Converter | str:
        """Return the function that converts values of the kind of `read` for the column, or the reason why they do not
        fit. Raises `ValueNotDecoded`."""
        convert = self._met.get(read.kind)
        if convert is None:
            if len(self._met) >= TYPES_MAX:
                self._met.clear()
            convert = self._met[read.kind] = self._meet(read)
        return convert

    def _meet(self, read: ValueReading) -> Converter | str:
        """Widen the type of the column for values of the kind of `read`. Returns the function that converts them, or
        the reason why they do not fit."""
        try:
            kind, convert = read.converted_type()
            lists = check_key_type(kind) if self.name == KEY else ()
            if lists:
                return f"the key has a list or a map, {lists[0]}, and a table has no column of such keys"
            if self._is_flat:
                kind, flat = flatten_type(kind, self.name)
                convert = _after(convert, flat)
            self.type = kind if self.type is None else merged_type(self.type, kind, self.name)
        except (TypesDiffer, ValueNotDecoded) as problem:
            return f"{read.schema or f'the {self.name}'} does not fit the table: {problem}"
        return convert

    def _column(self, decoded: list[object], misfits: dict[int, str]) -> pa.Array:
        try:
            return pa.array(decoded, self.type)
        except (pa.ArrowException, *NOT_HELD):
            for row, value in enumerate(decoded):
                try:
                    pa.array([value], self.type)
                except (pa.ArrowException, *NOT_HELD) as problem:
                    misfits[row] = f"the {self.name} does not fit the column: {problem}"
                    decoded[row] = None
            return pa.array(decoded, self.type)


class DecodedColumn(NamedTuple):
    """The decoded columns of a batch of keys or values."""

    arrays: Sequence[pa.Array]
    misfits: Mapping[int, str]
    """For each row that does not fit, by index, the reason."""
    deleted: Sequence[int]
    """The indexes of the rows whose change event deletes the row of the same key. Rows with a null value, which also
    delete, are left out."""


class DecodedColumns:
    """Makes rows with decoded keys or values. `schema` grows with the values that are met. The table must have the
    grown schema before rows are written to it."""

    def __init__(self, *typed: TypedColumn, has_headers: bool) -> None:
        self._typed = {each.name: each for each in typed}
        self._base = raw_schema(read_columns(has_headers=has_headers))

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows, except for those to which no value has given a type yet."""
        return pa.schema([field for each in self._base for field in self._fields(each)])

    def rows(self, batch: pa.RecordBatch, *, is_by_key: bool = False) -> TableRows:
        """Make the rows for a batch of records with the columns `read_names`. `is_by_key`: a key that decodes to null
        is a misfit, because it names no row. Raises what `TypedColumn.decode` raises."""
        decoded = {
            name: each.decode(batch, may_become_null=not is_by_key or name != KEY) for name, each in self._typed.items()
        }
        arrays = [
            array
            for each in self._base
            for array in (decoded[each.name].arrays if each.name in decoded else [batch.column(each.name)])
        ]
        misfits: dict[int, str] = {}
        for each in decoded.values():
            misfits = {**each.misfits, **misfits}
        unfit = [Misfit(row, reason) for row, reason in sorted(misfits.items())]
        deletes = np.asarray(batch.column("value").is_null()).copy()
        for each in decoded.values():
            deletes[list(each.deleted)] = True
        deletes = np.delete(deletes, list(misfits))
        return TableRows(
            without_misfits(pa.RecordBatch.from_arrays(arrays, schema=self.schema), unfit), pa.array(deletes), unfit
        )

    def meet(self, batch: pa.RecordBatch) -> None:
        """Widen the columns for the schemas that keys and values name. `batch` has the columns `needed_names`. Raises
        what `rows` raises."""
        for each in self._typed.values():
            each.meet(batch)

    @property
    def samples(self) -> dict[str, Mapping[str, Any]]:
        """The JSON Schemas of the decoded columns, by name, if they are known."""
        found = {name: each.json_schema for name, each in self._typed.items()}
        return {name: schema for name, schema in found.items() if schema is not None}

    @property
    def needed_names(self) -> Sequence[str]:
        """The names of the columns of records from which the decoded columns are made."""
        return list(dict.fromkeys(name for each in self._typed.values() for name in each.needed_names))

    @property
    def read_names(self) -> Sequence[str]:
        """The names of the columns of records from which rows are made."""
        return list(dict.fromkeys([*self._base.names, *self.needed_names]))

    def _fields(self, field: pa.Field) -> Sequence[pa.Field]:
        return self._typed[field.name].fields if field.name in self._typed else [field]


def _after(convert: Converter, flat: Converter) -> Converter:
    return lambda value: flat(convert(value))


Columns: TypeAlias = RawColumns | DecodedColumns
