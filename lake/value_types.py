"""The Arrow type of values by their schema (Avro, Protobuf, JSON), and the type that holds the values of two schemas.

What types evolve into is what Apache Iceberg lets a column become without writing files anew: fields are added, int
becomes long, float becomes double, the precision of a decimal grows. Every other difference is `TypesDiffer`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]

from moldau.tables.refusals import Refused
from moldau.tables.values.decoders import INSTALL, protobuf_files
from moldau.tables.values.registry import Schema, ValueNotDecoded

DEPTH_MAX: Final = 32
"""How deeply types may be nested; a type that contains itself is refused there."""
_AVRO: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_AVRO_LOGICAL: Final = {
    "date": pa.date32(),
    "time-millis": pa.time64("us"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
    "uuid": pa.string(),
}
_JSON: Final = {"integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_(), "string": pa.string()}
_PROTOBUF: Final = {
    "TYPE_DOUBLE": pa.float64(),
    "TYPE_FLOAT": pa.float32(),
    "TYPE_INT32": pa.int32(),
    "TYPE_SINT32": pa.int32(),
    "TYPE_SFIXED32": pa.int32(),
    "TYPE_UINT32": pa.int64(),
    "TYPE_FIXED32": pa.int64(),
    "TYPE_INT64": pa.int64(),
    "TYPE_SINT64": pa.int64(),
    "TYPE_SFIXED64": pa.int64(),
    "TYPE_UINT64": pa.decimal128(20, 0),
    "TYPE_FIXED64": pa.decimal128(20, 0),
    "TYPE_BOOL": pa.bool_(),
    "TYPE_STRING": pa.string(),
    "TYPE_BYTES": pa.binary(),
    "TYPE_ENUM": pa.string(),
}


class TypesDiffer(ValueError):
    """No column holds the values of both types; the message names the field."""


def type_of(schema: Schema, path: Sequence[int] = (0,)) -> pa.DataType:
    """The type of the values of a schema; of Protobuf that of the message at the `path` in the frame of a value. Raises
    `ValueNotDecoded` if the schema cannot be read or a table cannot have such a column, and `Refused` if the library
    of the schema is not installed.
    """
    try:
        if schema.kind == "AVRO":
            named: dict[str, Any] = {}
            for text in schema.references:
                _avro(json.loads(text), named, "", 0)
            return _avro(json.loads(schema.text), named, "", 0)
        if schema.kind == "JSON":
            return _json(json.loads(schema.text), 0)
        return _protobuf(schema, path)
    except ValueNotDecoded:
        raise
    except ImportError as missing:
        raise Refused(f"a schema of the type {schema.kind} needs {missing.name}: {INSTALL}") from None
    except (ValueError, LookupError, TypeError, AttributeError) as problem:
        raise ValueNotDecoded(f"the schema cannot be read: {type(problem).__name__}: {problem}") from None


def merged_type(one: pa.DataType, other: pa.DataType, path: str = "value") -> pa.DataType:
    """The type that holds the values of both: the fields of the first in their order, then those that the other adds.
    Raises `TypesDiffer`.
    """
    if one.equals(other):
        return one
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        here, there = ({each.name: each for each in kind} for kind in (one, other))
        fields = [
            pa.field(name, merged_type(each.type, there[name].type, f"{path}.{name}") if name in there else each.type)
            for name, each in here.items()
        ]
        same = same_names([*here, *there])
        if same is not None:
            raise TypesDiffer("{} has the field {}, and the schema has {}".format(path, *same))
        return pa.struct([*fields, *(pa.field(each.name, each.type) for each in other if each.name not in here)])
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(pa.field("element", merged_type(one.value_type, other.value_type, f"{path}.element")))
    if pa.types.is_map(one) and pa.types.is_map(other) and one.key_type.equals(other.key_type):
        return pa.map_(one.key_type, merged_type(one.item_type, other.item_type, f"{path}.value"))
    wider = _wider(one, other)
    if wider is None:
        raise TypesDiffer(f"{path} is {one}, and the schema has {other}")
    return wider


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if {one, other} == {pa.int32(), pa.int64()}:
        return pa.int64()
    if {one, other} == {pa.float32(), pa.float64()}:
        return pa.float64()
    if pa.types.is_decimal(one) and pa.types.is_decimal(other) and one.scale == other.scale:
        return one if one.precision >= other.precision else other
    return None


def _avro(schema: Any, named: dict[str, Any], namespace: str, depth: int) -> pa.DataType:
    if depth > DEPTH_MAX:
        raise ValueNotDecoded("a type of the schema contains itself, and a table has no column of such a type")
    if isinstance(schema, list):
        kinds = [each for each in schema if each != "null"]
        if len(kinds) != 1:
            raise ValueNotDecoded(f"a union of {len(kinds)} types is not a column of a table: {json.dumps(schema)}")
        return _avro(kinds[0], named, namespace, depth + 1)
    if isinstance(schema, str):
        if schema in _AVRO:
            return _AVRO[schema]
        full = schema if "." in schema or not namespace else f"{namespace}.{schema}"
        found = named.get(full, named.get(schema))
        if found is None:
            raise ValueNotDecoded(f"the schema refers to {schema}, which it does not have")
        return _avro(found, named, namespace, depth + 1)
    kind = schema["type"]
    if "name" in schema:
        namespace = schema.get("namespace") or schema["name"].rpartition(".")[0] or namespace
        short = schema["name"].rpartition(".")[2]
        named[f"{namespace}.{short}" if namespace else short] = schema
    if kind == "record":
        names = [each["name"] for each in schema["fields"]]
        types = [_avro(each["type"], named, namespace, depth + 1) for each in schema["fields"]]
        return _struct(dict(zip(names, types, strict=True)))
    if kind == "array":
        return _list(_avro(schema["items"], named, namespace, depth + 1))
    if kind == "map":
        return pa.map_(pa.string(), _avro(schema["values"], named, namespace, depth + 1))
    if schema.get("logicalType") == "decimal":
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    if schema.get("logicalType") in _AVRO_LOGICAL:
        return _AVRO_LOGICAL[schema["logicalType"]]
    return _avro(kind, named, namespace, depth + 1) if kind not in _AVRO else _AVRO[kind]


def _json(schema: Any, depth: int) -> pa.DataType:
    """The type of a JSON schema without references; one of several types is not a column of a table."""
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    if isinstance(kind, list):
        kinds = [each for each in kind if each != "null"]
        kind = kinds[0] if len(kinds) == 1 else None
    if depth > DEPTH_MAX or kind is None:
        raise ValueNotDecoded(f"this part of the schema gives no single type: {json.dumps(schema)[:200]}")
    if kind in _JSON:
        return _JSON[kind]
    if kind == "array":
        return _list(_json(schema.get("items"), depth + 1))
    if kind == "object" and schema.get("properties"):
        return _struct({name: _json(each, depth + 1) for name, each in schema["properties"].items()})
    if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return pa.map_(pa.string(), _json(schema["additionalProperties"], depth + 1))
    raise ValueNotDecoded(f"this part of the schema gives no single type: {json.dumps(schema)[:200]}")


def _protobuf(schema: Schema, path: Sequence[int]) -> pa.DataType:
    """The type of the message of a file at a path: an index among the messages of the file, then of each one inside."""
    files = protobuf_files(schema)
    messages: dict[str, Any] = {}

    def collect(prefix: str, found: Any) -> None:
        for each in found:
            messages[f"{prefix}.{each.name}"] = each
            collect(f"{prefix}.{each.name}", each.nested_type)

    for file in files.file:
        collect(f".{file.package}" if file.package else "", file.message_type)
    if not files.file or not files.file[-1].message_type:
        raise ValueNotDecoded("the schema has no message")
    found: Any = None
    for index in path:
        inside = files.file[-1].message_type if found is None else found.nested_type
        if index >= len(inside):
            raise ValueNotDecoded(f"the schema has no message at {list(path)}, which the frame of the value names")
        found = inside[index]
    return _message(found, messages, 0)


def _message(message: Any, messages: Mapping[str, Any], depth: int) -> pa.DataType:
    if depth > DEPTH_MAX:
        raise ValueNotDecoded("a type of the schema contains itself, and a table has no column of such a type")
    found = {}
    for field in message.field:
        kind = field.Type.Name(field.type)
        nested = messages.get(field.type_name)
        if nested is not None and nested.options.map_entry:
            key, value = (_field_type(each, messages, depth) for each in nested.field)
            found[field.name] = pa.map_(key, value)
            continue
        if kind not in _PROTOBUF and nested is None:
            raise ValueNotDecoded(f"the field {field.name} is of the type {field.type_name or kind}")
        of_one = _field_type(field, messages, depth)
        found[field.name] = _list(of_one) if field.label == field.LABEL_REPEATED else of_one
    return _struct(found)


def _field_type(field: Any, messages: Mapping[str, Any], depth: int) -> pa.DataType:
    kind = field.Type.Name(field.type)
    return _PROTOBUF[kind] if kind in _PROTOBUF else _message(messages[field.type_name], messages, depth + 1)


def same_names(names: Iterable[str]) -> tuple[str, str] | None:
    """Two names that differ by case alone, for which engines of SQL have one column; None if there are none."""
    met: dict[str, str] = {}
    for name in names:
        other = met.setdefault(name.casefold(), name)
        if other != name:
            return other, name
    return None


def _struct(fields: Mapping[str, pa.DataType]) -> pa.DataType:
    if not fields:
        raise ValueNotDecoded("a type of the schema has no fields, and a table has no column of such a type")
    same = same_names(fields)
    if same is not None:
        raise ValueNotDecoded(
            "the names of the fields {} and {} differ by case alone, and a table has no such columns".format(*same)
        )
    return pa.struct([pa.field(name, kind) for name, kind in fields.items()])


def _list(of_one: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", of_one))


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type of a column as the decoders make it, from the type that a table's schema gives: with 32-bit offsets."""
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, plain_type(each.type)) for each in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _list(plain_type(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    return kind
