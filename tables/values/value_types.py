"""The Arrow type of decoded values for a schema (Avro, Protobuf, JSON), and the type that holds the values of two
schemas.

Types are merged as Apache Iceberg lets a column change without rewriting files: fields are added, int becomes long,
float becomes double, the precision of a decimal grows. Every other difference raises `TypesDiffer`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]

from moldau.tables.refusals import Refused
from moldau.tables.values.registry import Schema, ValueNotDecoded

DEPTH_MAX: Final = 32
"""The most levels of nested types. At this depth a type that contains itself is refused."""
INSTALL: Final = "pip install 'moldau[schemas]'"
TYPES_MAX: Final = 10_000
"""The most types within one type, because a schema of a few lines can repeat a type in a type in a type."""
EMPTY: Final = pa.bool_()
"""The Arrow type of a record without fields. Its value is true if the record exists."""


class TypesDiffer(ValueError):
    """No column can hold the values of both types. The message names the field."""


class TypeCount:
    """Counts the types that are made from one schema."""

    def __init__(self) -> None:
        self._left = TYPES_MAX

    def count_type(self) -> None:
        """Count one more type. Raises `ValueNotDecoded` if there are too many."""
        self._left -= 1
        if self._left < 0:
            raise ValueNotDecoded(f"the schema has more than {TYPES_MAX:,} types within one another")


class ColumnType(NamedTuple):
    """The Arrow type of a column for decoded values."""

    type: pa.DataType
    needs_conversion: bool = True
    """Whether `converters.py` has to convert decoded values before they fit the column."""


def type_of(schema: Schema, path: Sequence[int] = (0,)) -> ColumnType:
    """Return the Arrow type of the values of a schema. For Protobuf it is the type of the message at the `path` that
    the frame of a value names. Raises `ValueNotDecoded` if the schema cannot be read or a table cannot have such a
    column, and `Refused` if the library of the schema is not installed."""
    from moldau.tables.values.avro_types import avro_type
    from moldau.tables.values.json_types import json_type
    from moldau.tables.values.protobuf_types import protobuf_type

    try:
        if schema.kind == "AVRO":
            return avro_type(schema)
        if schema.kind == "JSON":
            return json_type(schema)
        return protobuf_type(schema, path)
    except ValueNotDecoded:
        raise
    except ImportError as missing:
        raise Refused(f"a schema of the type {schema.kind} needs {missing.name}: {INSTALL}") from None
    except (ValueError, LookupError, TypeError, AttributeError) as problem:
        raise ValueNotDecoded(f"the schema cannot be read: {type(problem).__name__}: {problem}") from None


def merged_type(one: pa.DataType, other: pa.DataType, path: str = "value") -> pa.DataType:
    """Return the type that holds the values of both types: the fields of `one` in their order, then those that `other`
    adds. Raises `TypesDiffer`."""
    if one.equals(other):
        return one
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        here, there = ({each.name: each for each in kind} for kind in (one, other))
        fields = [
            pa.field(name, merged_type(each.type, there[name].type, f"{path}.{name}") if name in there else each.type)
            for name, each in here.items()
        ]
        same = names_differing_by_case([*here, *there])
        if same is not None:
            raise TypesDiffer("{} has the field {}, and the schema has {}".format(path, *same))
        merged = pa.struct([*fields, *(pa.field(each.name, each.type) for each in other if each.name not in here)])
        dotted = ambiguous_paths(merged)
        if dotted:
            raise TypesDiffer(f"{path} would have two fields {dotted[0]}: one nested, and one with dots in its name")
        return merged
    if pa.types.is_list(one) and pa.types.is_list(other):
        return list_of(merged_type(one.value_type, other.value_type, f"{path}.element"))
    if pa.types.is_map(one) and pa.types.is_map(other) and one.key_type.equals(other.key_type):
        return pa.map_(one.key_type, merged_type(one.item_type, other.item_type, f"{path}.value"))
    wider = _wider(one, other)
    if wider is None:
        raise TypesDiffer(f"{path} is {one}, and the schema has {other}")
    return wider


def can_hold(stored: pa.Schema, wanted: pa.Schema) -> bool:
    """Whether a stored table has all wanted columns, with types that can hold their values."""
    for each in wanted:
        if each.name not in stored.names:
            return False
        kind = plain_type(stored.field(each.name).type)
        try:
            if not merged_type(kind, plain_type(each.type), each.name).equals(kind):
                return False
        except TypesDiffer:
            return False
    return True


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if {one, other} == {pa.int32(), pa.int64()}:
        return pa.int64()
    if {one, other} == {pa.float32(), pa.float64()}:
        return pa.float64()
    if pa.types.is_decimal(one) and pa.types.is_decimal(other) and one.scale == other.scale:
        return one if one.precision >= other.precision else other
    return None


def names_differing_by_case(names: Iterable[str]) -> tuple[str, str] | None:
    """Return two of the names that differ by case alone, which SQL engines take for the same column; None if there are
    none."""
    met: dict[str, str] = {}
    for name in names:
        other = met.setdefault(name.casefold(), name)
        if other != name:
            return other, name
    return None


def ambiguous_paths(kind: pa.DataType) -> list[str]:
    """Return the fields of a struct whose names are also the path of a nested field, such as `a.b` if there is a struct
    `a` with a field `b`. Iceberg cannot distinguish the two."""
    dotted = [each.name for each in kind if "." in each.name]
    if not dotted:
        return []
    nested = {path for field in kind for path in _paths(field) if path != field.name}
    return [name for name in dotted if name in nested]


def _paths(field: Any) -> Iterable[str]:
    yield field.name
    kind = field.type
    if pa.types.is_list(kind):
        inner = [pa.field("element", kind.value_type)]
    elif pa.types.is_map(kind):
        inner = [pa.field("key", kind.key_type), pa.field("value", kind.item_type)]
    else:
        inner = list(kind) if pa.types.is_struct(kind) else []
    for each in inner:
        for path in _paths(each):
            yield f"{field.name}.{path}"
            if each.name in ("element", "value"):
                yield f"{field.name}.{path.partition('.')[2]}"


def struct_of(fields: Mapping[str, pa.DataType]) -> pa.DataType:
    """Make a struct type; `EMPTY` if there are no fields. Raises `ValueNotDecoded` if two names differ
    by case alone."""
    same = names_differing_by_case(fields)
    if same is not None:
        raise ValueNotDecoded(
            "the names of the fields {} and {} differ by case alone, and a table has no such columns".format(*same)
        )
    return pa.struct([pa.field(name, kind) for name, kind in fields.items()]) if fields else EMPTY


def list_of(of_one: pa.DataType) -> pa.DataType:
    """Make a list type, whose elements have the name `element`, as Iceberg names them."""
    return pa.list_(pa.field("element", of_one))


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Convert the type of a column in a stored table into the type that the decoders use, which has 32-bit offsets."""
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, plain_type(each.type)) for each in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return list_of(plain_type(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    return kind
