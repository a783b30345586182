"""The layout of a table's files: their partitions, and the order of the rows within each file.

A user may choose a field of the value before any value was read. The field has no type then, so the choice is stored
as a property of the table. It becomes part of the partition spec in the commit that adds the field.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, NamedTuple
from urllib.parse import quote

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform, MonthTransform, YearTransform

from moldau.tables.refusals import Refused

TIME_COLUMN: Final = "timestamp"
UNITS: Final = {"hour": HourTransform, "day": DayTransform, "month": MonthTransform, "year": YearTransform}
"""The units of time by which a table can be partitioned, with pyiceberg's transforms."""
FORMATS: Final = {"hour": "%Y-%m-%d-%H", "day": "%Y-%m-%d", "month": "%Y-%m", "year": "%Y"}
PROPERTY: Final = "moldau.layout"
"""The property of a table that stores the fields that a user chose."""
NAME_SIZE_MAX: Final = 100
"""The most characters of a value in the name of a directory."""


@dataclass(frozen=True, slots=True)
class ChosenLayout:
    """The fields, as paths with dots, by which a user wants files partitioned and rows sorted."""

    partition_fields: tuple[str, ...] = ()
    sort_fields: tuple[str, ...] = ()

    def to_properties(self) -> dict[str, str]:
        """The properties of a table that store this choice. Raises `Refused` if two partition fields would have one
        name."""
        met = {f"{TIME_COLUMN}_{unit}": f"the {unit}" for unit in UNITS}
        for path in self.partition_fields:
            other = met.setdefault(partition_name(path), path)
            if other != path:
                raise Refused(f"--partition-by {path}: its partition would have the name of that by {other}")
        if not self.partition_fields and not self.sort_fields:
            return {}
        return {PROPERTY: json.dumps({"partition": self.partition_fields, "sort": self.sort_fields})}

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> ChosenLayout:
        """Read the chosen layout from the properties of a table."""
        written = properties.get(PROPERTY)
        if written is None:
            return cls()
        found = json.loads(written)
        return cls(tuple(found["partition"]), tuple(found["sort"]))

    def new_fields(self, schema: pa.Schema, spec: PartitionSpec) -> list[tuple[str, str]]:
        """The path and the name of each chosen partition field that the schema has and the partition spec does not have
        yet. Raises `Refused` for a field whose values cannot be the name of a partition."""
        known = {each.name for each in spec.fields}
        found = [(path, partition_name(path)) for path in self.partition_fields]
        new = [(path, name) for path, name in found if name not in known and type_at(schema, path) is not None]
        for path, _ in new:
            kind = type_at(schema, path)
            if not any(test(kind) for test in _NAMING):
                raise Refused(f"--partition-by {path}: it is {kind}, and not a text, an integer or a boolean")
        return new


def partition_name(path: str) -> str:
    """The name of a partition field in the partition spec, for the field at a path."""
    return path.replace(".", "_")


_NAMING: Final = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_integer,
    pa.types.is_boolean,
)


class PartitionRows(NamedTuple):
    """The rows of one partition of the table."""

    directory: str
    """The name of the partition's directory, which ends in a slash; empty if the table is not partitioned."""
    rows: pa.RecordBatch
    values: dict[str, object]
    """The values of the partition fields, by their names in the spec, without that of the time."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The present layout of a table's files: their partitions and the order of their rows."""

    unit: str | None = None
    """The unit of `timestamp` by which the table is partitioned; None if it is not partitioned by time."""
    fields: tuple[tuple[str, str], ...] = ()
    """The path and the name of each other field by which the table is partitioned."""
    sort_fields: tuple[str, ...] = ()

    def partitioned(self, batch: pa.RecordBatch) -> list[PartitionRows]:
        """Divide rows by the partitions of the table."""
        found = by_time(batch, self.unit)
        for path, name in self.fields:
            found = [
                PartitionRows(f"{part.directory}{name}={directory_name(value)}/", rows, part.values | {name: value})
                for part in found
                for value, rows in by_value(part.rows, column_at(part.rows, path))
            ]
        return found

    def ordered(self, rows: pa.Table) -> pa.Table:
        """Return the rows sorted by `sort_fields`, ascending, nulls first."""
        columns = [column_at(rows, path) for path in self.sort_fields if type_at(rows.schema, path) is not None]
        if not columns:
            return rows
        keys = pa.table(columns, names=list(map(str, range(len(columns)))))
        order = [(name, "ascending", "at_start") for name in keys.column_names]
        return rows.take(pc.sort_indices(keys, sort_keys=order))


def layout_of(spec: PartitionSpec, schema: Schema, properties: Mapping[str, str]) -> Layout:
    """Return the layout of a table. Raises `Refused` if the table is partitioned in a way that is not supported: only a
    unit of the time and the values of fields are."""
    unit, fields = None, []
    for each in spec.fields:
        path = schema.find_column_name(each.source_id)
        found = next((name for name, kind in UNITS.items() if isinstance(each.transform, kind)), None)
        if found is not None and path == TIME_COLUMN and unit is None:
            unit = found
        elif isinstance(each.transform, IdentityTransform) and path is not None:
            fields.append((path, each.name))
        else:
            raise Refused(
                f"the table is partitioned by {spec}: a table is followed that is partitioned by a unit of "
                f"{TIME_COLUMN}, by the values of fields, or not"
            )
    return Layout(unit, tuple(fields), ChosenLayout.of(properties).sort_fields)


def type_at(schema: pa.Schema, path: str) -> pa.DataType | None:
    """The type of the scalar field at a path through structs; None if there is no such field, or it is a struct, a list
    or a map."""
    fields, kind = {each.name: each.type for each in schema}, None
    for name in path.split("."):
        kind = fields.get(name)
        fields = {each.name: each.type for each in kind} if kind is not None and pa.types.is_struct(kind) else {}
    return None if kind is None or pa.types.is_nested(kind) else kind


def column_at(rows: pa.RecordBatch | pa.Table, path: str) -> pa.Array | pa.ChunkedArray:
    """The values of the field at a path through structs. A value is null if a struct above it is null."""
    name, *inner = path.split(".")
    return pc.struct_field(rows.column(name), inner) if inner else rows.column(name)


def by_time(batch: pa.RecordBatch, unit: str | None) -> list[PartitionRows]:
    """Divide rows by a unit of their timestamps; None leaves them together."""
    if unit is None:
        return [PartitionRows("", batch, {})]
    starts = pc.floor_temporal(batch.column(TIME_COLUMN), unit=unit)
    met = pc.unique(starts)
    found = []
    for start in met:
        rows = batch if len(met) == 1 else batch.filter(pc.equal(starts, start))
        found.append(PartitionRows(f"{TIME_COLUMN}_{unit}={start.as_py().strftime(FORMATS[unit])}/", rows, {}))
    return found


def by_value(batch: pa.RecordBatch, column: pa.Array) -> list[tuple[object, pa.RecordBatch]]:
    """Divide rows by the value of a column. Returns each value with its rows."""
    met = pc.unique(column)
    found = []
    for value in met:
        is_it = pc.equal(column, value) if value.is_valid else column.is_null()
        found.append((value.as_py(), batch if len(met) == 1 else batch.filter(is_it)))
    return found


def directory_name(value: object) -> str:
    """The text that stands for a value in the name of a directory."""
    if value is None:
        return "null"
    named = quote(str(value), safe="") or "%"
    if named == "null":
        return "%6Eull"
    if len(named) <= NAME_SIZE_MAX:
        return named
    return f"{named[:NAME_SIZE_MAX]}-{sha256(named.encode()).hexdigest()[:16]}"
