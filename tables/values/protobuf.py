"""Decoding Protobuf: the files of a schema, the message type that a frame names, and the fields of a message as values.

| field | value |
|---|---|
| enum | the name of its number; the digits of a number without a name |
| group | as a message |
| extension that the schema has | under its full name in brackets |
| `google.protobuf.Struct`, `Value`, `ListValue` | `JsonValue` |
| one that has presence and is absent | None |

A schema may import files that a registry does not name. Google's well-known files come with the library, and
`confluent/type/decimal.proto` is defined in this module. Any other file may be missing if no field needs it, as a file
of options.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from moldau.tables.values.bounds import ProtobufBounds
from moldau.tables.values.frames import message_path
from moldau.tables.values.registry import Schema, ValueNotDecoded

PATHS_MAX: Final = 1_000
"""The most message types of a schema that are remembered by their path. There is a limit because a frame can name any
path."""
JSON_TYPES: Final = ("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue")
"""The message types that represent JSON, and can contain themselves."""
_IN_LIBRARIES: Final = re.compile(r"google/(?:protobuf|type)/[a-z_]+\.proto")
_DECIMAL_FILE: Final = "confluent/type/decimal.proto"
_Read = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class JsonValue:
    """A value that is JSON itself, because its schema does not describe its type."""

    value: object


class ProtobufSchema:
    """The files of a Protobuf schema, in two descriptor pools. In the second pool, which decodes, enums are integers.
    With an enum of proto2 the library would move a number without a name from its position in a list to the unknown
    fields."""

    def __init__(self, schema: Schema) -> None:
        """Parse the schema. Raises `ValueNotDecoded`, ImportError, and TypeError of the library if the files do not fit
        together."""
        from google.protobuf.descriptor_pb2 import FileDescriptorProto  # type: ignore[import-untyped,unused-ignore]
        from google.protobuf.descriptor_pool import DescriptorPool  # type: ignore[import-untyped,unused-ignore]

        files = protobuf_files(schema)
        self._pool, self._decoding = DescriptorPool(), DescriptorPool()
        for file in in_import_order(files):
            self._pool.AddSerializedFile(file.SerializeToString())
            resolved = FileDescriptorProto()
            self._pool.FindFileByName(file.name).CopyToProto(resolved)
            turn_enums_into_integers(resolved)
            self._decoding.AddSerializedFile(resolved.SerializeToString())
        self._file: Any = self._pool.FindFileByName(files[-1].name)

    def message(self, path: Sequence[int]) -> Any:
        """Return the descriptor of the message type at a path. The path is an index among the message types of the
        file, then an index among the types nested in each one.

        Raises `ValueNotDecoded`.
        """
        found, inside = None, list(self._file.message_types_by_name.values())
        for index in path:
            if index >= len(inside) or inside[index].GetOptions().map_entry:
                raise ValueNotDecoded(f"the schema has no message at {list(path)}, which the frame of the value names")
            found = inside[index]
            inside = list(found.nested_types)
        return found

    def extensions(self, message: Any) -> Sequence[Any]:
        """The extensions of a message type, by number."""
        return sorted(self._pool.FindAllExtensions(message), key=lambda each: int(each.number))

    def reader(self, message: Any) -> tuple[Any, _Read]:
        """Return the class of a message type, and a function that returns the fields of a message as values."""
        from google.protobuf.message_factory import GetMessageClass  # type: ignore[import-untyped,unused-ignore]

        found = self._decoding.FindMessageTypeByName(message.full_name)
        return GetMessageClass(found), self._fields_of(message, {})

    def _fields_of(self, message: Any, known: dict[str, _Read]) -> _Read:
        if message.full_name in JSON_TYPES:
            return json_value
        if message.full_name in known:
            return known[message.full_name]
        fields: list[tuple[str, _Read]] = []

        def read(value: Any) -> dict[str, object]:
            return {name: of_field(value) for name, of_field in fields}

        known[message.full_name] = read
        for field in message.fields:
            fields.append((field.name, self._field(field, known)))
        for field in self.extensions(message):
            fields.append((extension_name(field), self._extension(field, known)))
        return read

    def _field(self, field: Any, known: dict[str, _Read]) -> _Read:
        name = field.name
        if is_map(field):
            of_item = self._one(field.message_type.fields_by_name["value"], known)
            if of_item is None:
                return lambda message: sorted(getattr(message, name).items())
            return lambda message: [(key, of_item(each)) for key, each in sorted(getattr(message, name).items())]
        of_one = self._one(field, known)
        if field.is_repeated:
            return lambda message: _each(getattr(message, name), of_one)
        if field.has_presence:
            return lambda message: _given(getattr(message, name), of_one) if message.HasField(name) else None
        return lambda message: _given(getattr(message, name), of_one)

    def _extension(self, field: Any, known: dict[str, _Read]) -> _Read:
        found, of_one = self._decoding.FindExtensionByName(field.full_name), self._one(field, known)
        if field.is_repeated:
            return lambda message: _each(message.Extensions[found], of_one)
        return lambda message: _given(message.Extensions[found], of_one) if message.HasExtension(found) else None

    def _one(self, field: Any, known: dict[str, _Read]) -> _Read | None:
        """Return the conversion of one value of a field; None if the value needs no conversion."""
        if field.message_type is not None:
            return self._fields_of(field.message_type, known)
        if field.enum_type is not None:
            names = {number: each.name for number, each in field.enum_type.values_by_number.items()}
            return lambda number: names.get(number) or str(number)
        return None


def _given(value: Any, of_one: _Read | None) -> object:
    return value if of_one is None else of_one(value)


def _each(values: Any, of_one: _Read | None) -> list[object]:
    return list(values) if of_one is None else [of_one(each) for each in values]


def json_value(message: Any) -> JsonValue:
    """Return the JSON that a message of `JSON_TYPES` represents."""
    from google.protobuf.json_format import MessageToDict  # type: ignore[import-untyped,unused-ignore]

    return JsonValue(MessageToDict(message))


def is_map(field: Any) -> bool:
    """Whether a field is a map, which Protobuf encodes as a list of messages of two fields."""
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def extension_name(field: Any) -> str:
    """The name of an extension among the fields of a message, as in Protobuf's JSON."""
    return f"[{field.full_name}]"


def protobuf_decoder(schema: Schema) -> Callable[[memoryview], object]:
    """Return a function that decodes payloads of a schema, each as the message type that it names. Raises what
    `ProtobufSchema` raises."""
    files = ProtobufSchema(schema)
    found: dict[tuple[int, ...], tuple[ProtobufBounds, Any, _Read]] = {}

    def decode(payload: memoryview) -> object:
        path, data = message_path(payload)
        known = found.get(tuple(path))
        if known is None:
            if len(found) >= PATHS_MAX:
                found.clear()
            message = files.message(path)
            known = found[tuple(path)] = ProtobufBounds(message, files.extensions), *files.reader(message)
        bounds, kind, read = known
        bounds.check(data)
        return read(kind.FromString(bytes(data)))

    return decode


# The files of a schema


def protobuf_files(schema: Schema) -> list[Any]:
    """Return the FileDescriptorProtos of a schema, the schema's own file last. A file that others import gets the name
    by which they import it.

    Raises `ValueNotDecoded`.
    """
    from google.protobuf.descriptor_pb2 import (  # type: ignore[import-untyped,unused-ignore]
        FileDescriptorProto,
        FileDescriptorSet,
    )
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped,unused-ignore]

    try:
        if schema.is_set:
            files = list(FileDescriptorSet.FromString(schema.text).file)
        else:
            own = FileDescriptorProto.FromString(schema.text)
            files = [*(FileDescriptorProto.FromString(each.text) for each in schema.references), own]
            for file, reference in zip(files, schema.references, strict=False):
                file.name = reference.name
            if not own.name or own.name in (each.name for each in schema.references):
                own.name = "the schema itself"
    except DecodeError as problem:
        raise ValueNotDecoded(f"it is not a descriptor of Protobuf: {problem}") from None
    if not files or not files[-1].message_type:
        raise ValueNotDecoded("the schema has no message")
    return files


def in_import_order(files: Sequence[Any]) -> Iterator[Any]:
    """Yield the files and those that they import, each file after its imports."""
    given = {each.name: each for each in files}
    met: set[str] = set()

    def follow(file: Any) -> Iterator[Any]:
        met.add(file.name)
        for name in file.dependency:
            if name not in met:
                yield from follow(given[name] if name in given else library_file(name))
        yield file

    for each in files:
        if each.name not in met:
            yield from follow(each)


def library_file(name: str) -> Any:
    """Return a file that a schema imports but does not contain. The file is empty if no library has it."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto  # type: ignore[import-untyped,unused-ignore]

    file = FileDescriptorProto(name=name)
    if name == _DECIMAL_FILE:
        file.package, file.syntax = "confluent.type", "proto3"
        message = file.message_type.add(name="Decimal")
        for number, (field, kind) in enumerate((("value", 12), ("precision", 13), ("scale", 5)), 1):
            message.field.add(name=field, number=number, type=kind, label=1)
    elif _IN_LIBRARIES.fullmatch(name):
        try:
            module = import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
        except ImportError:
            return file
        module.DESCRIPTOR.CopyToProto(file)
    return file


def turn_enums_into_integers(file: Any) -> None:
    """Turn the enum fields of a file whose types are resolved into integer fields."""
    fields, messages = list(file.extension), list(file.message_type)
    while messages:
        message = messages.pop()
        fields += [*message.field, *message.extension]
        messages += message.nested_type
    for field in fields:
        if field.type == field.TYPE_ENUM:
            field.type = field.TYPE_INT32
            field.ClearField("type_name")
            field.ClearField("default_value")
