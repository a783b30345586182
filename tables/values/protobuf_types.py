"""The Arrow type of decoded values for a Protobuf schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]

from moldau.tables.values.protobuf import JSON_TYPES, ProtobufSchema, extension_name, is_map
from moldau.tables.values.registry import Schema, ValueNotDecoded
from moldau.tables.values.value_types import DEPTH_MAX, ColumnType, TypeCount, list_of, struct_of

_TYPES: Final = {
    1: pa.int32(),
    2: pa.int64(),
    3: pa.int64(),
    4: pa.decimal128(20, 0),
    5: pa.float64(),
    6: pa.float32(),
    7: pa.bool_(),
    8: pa.string(),
}
"""The Arrow type of a field by its `cpp_type`: the kinds of integers (the fourth is uint64), double,
float, bool, enum."""


def protobuf_type(schema: Schema, path: Sequence[int]) -> ColumnType:
    """Return the Arrow type for the message type of a schema at a path. Raises what `ProtobufSchema` raises, and
    `ValueNotDecoded` if a table has no column of such a type."""
    builder = _Builder(ProtobufSchema(schema), path)
    return ColumnType(builder.built, builder.needs_conversion)


class _Builder:
    def __init__(self, files: ProtobufSchema, path: Sequence[int]) -> None:
        self._files = files
        self._count = TypeCount()
        self.needs_conversion = False
        self.built = self._message(files.message(path), 0)

    def _message(self, message: Any, depth: int) -> pa.DataType:
        if message.full_name in JSON_TYPES:
            self.needs_conversion = True
            return pa.string()
        if depth > DEPTH_MAX:
            raise ValueNotDecoded("a type of the schema contains itself, and a table has no column of such a type")
        found = {each.name: self._field(each, depth) for each in message.fields}
        for each in self._files.extensions(message):
            found[extension_name(each)] = self._field(each, depth)
        self.needs_conversion |= not found
        return struct_of(found)

    def _field(self, field: Any, depth: int) -> pa.DataType:
        self._count.count_type()
        if is_map(field):
            key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
            return pa.map_(self._one(key, depth), self._one(value, depth))
        of_one = self._one(field, depth)
        return list_of(of_one) if field.is_repeated else of_one

    def _one(self, field: Any, depth: int) -> pa.DataType:
        if field.message_type is not None:
            return self._message(field.message_type, depth + 1)
        if field.cpp_type == field.CPPTYPE_STRING:
            return pa.binary() if field.type == field.TYPE_BYTES else pa.string()
        return _TYPES[field.cpp_type]
