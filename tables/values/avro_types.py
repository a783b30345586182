"""The Arrow type of decoded values for an Avro schema."""

from __future__ import annotations

import json
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]

from moldau.tables.values.avro import DURATION, TIME_MICROS, TIME_MILLIS, UUID_TEXT, AvroSchema, avro_schema
from moldau.tables.values.bounds import BIG_DECIMAL, DECIMAL, LONG_DECIMAL, type_of
from moldau.tables.values.registry import Schema, ValueNotDecoded
from moldau.tables.values.value_types import DEPTH_MAX, ColumnType, TypeCount, list_of, struct_of

_TYPES: Final = {
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
_LOGICAL: Final = {
    "date": pa.date32(),
    TIME_MILLIS: pa.time64("us"),
    TIME_MICROS: pa.time64("us"),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
    LONG_DECIMAL: pa.string(),
    BIG_DECIMAL: pa.string(),
    UUID_TEXT: pa.string(),
    DURATION: pa.struct([(name, pa.int64()) for name in ("months", "days", "millis")]),
}


def avro_type(schema: Schema) -> ColumnType:
    """Return the Arrow type of the values of an Avro schema. Raises what `avro_schema` raises, and `ValueNotDecoded` if
    a table has no column of such a type."""
    builder = _Builder(avro_schema(schema))
    return ColumnType(builder.built, builder.has_empty)


class _Builder:
    def __init__(self, schema: AvroSchema) -> None:
        self._named = schema.named
        self._count = TypeCount()
        self.has_empty = False
        self.built = self._type(schema.parsed, 0)

    def _type(self, schema: Any, depth: int) -> pa.DataType:
        self._count.count_type()
        if depth > DEPTH_MAX:
            raise ValueNotDecoded("a type of the schema contains itself, and a table has no column of such a type")
        kind, schema = type_of(schema, self._named)
        if isinstance(schema, list):
            kinds = [each for each in schema if each != "null"]
            if len(kinds) != 1:
                shown = json.dumps(schema)[:200]
                raise ValueNotDecoded(f"a union of {len(kinds)} types is not a column of a table: {shown}")
            return self._type(kinds[0], depth + 1)
        if kind in ("record", "error"):
            fields = {each["name"]: each["type"] for each in schema["fields"]}
            found = {name: self._type(each, depth + 1) for name, each in fields.items() if not self._is_null(each)}
            self.has_empty |= not found
            return struct_of(found)
        if kind == "array":
            return list_of(self._type(schema["items"], depth + 1))
        if kind == "map":
            return pa.map_(pa.string(), self._type(schema["values"], depth + 1))
        logical = schema.get("logicalType", "") if isinstance(schema, dict) else ""
        if logical == DECIMAL:
            return pa.decimal128(schema["precision"], schema["scale"])
        if kind == "null":
            raise ValueNotDecoded("values that are always null are not a column of a table")
        return _LOGICAL[logical] if logical in _LOGICAL else _TYPES[kind]

    def _is_null(self, schema: Any) -> bool:
        """Whether a field can only be null, so that no column is made for it."""
        kind, schema = type_of(schema, self._named)
        return kind == "null" or schema == ["null"]
