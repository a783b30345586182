"""Decoding payloads by their schemas, into dicts, lists and scalars that Arrow takes."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final, TypeAlias
from uuid import UUID

from moldau.tables.refusals import Refused
from moldau.tables.values.bounds import AvroBounds, ProtobufBounds, parse_json
from moldau.tables.values.registry import Schema, SchemaSource, ValueNotDecoded, message_path, unframed

Decode: TypeAlias = Callable[[memoryview], object]
INSTALL: Final = "pip install 'moldau[schemas]'"
NOT_HELD: Final = (TypeError, ValueError, OverflowError)
"""What `pa.array` raises, besides the exceptions of Arrow, for a decoded value that its type does not hold."""


class FramedValues:
    """Decodes framed values. Each schema is fetched once."""

    def __init__(self, source: SchemaSource) -> None:
        self._source = source
        self._decoders: dict[int, Decode] = {}

    def decode(self, value: bytes) -> object:
        """Decode one framed value. Raises `ValueNotDecoded`, `RegistryNotReached`, and as `decoder_of`."""
        schema_id, payload = unframed(value)
        decoder = self._decoders.get(schema_id)
        if decoder is None:
            decoder = self._decoders[schema_id] = decoder_of(self._source.schema(schema_id), schema_id)
        try:
            return decoder(payload)
        except ValueNotDecoded:
            raise
        except Exception as problem:  # fastavro and protobuf raise what Python raises on hostile bytes
            raise ValueNotDecoded(
                f"the value does not fit schema {schema_id}: {problem or type(problem).__name__}"
            ) from None


def decoder_of(schema: Schema, schema_id: int) -> Decode:
    """A function that decodes payloads of a schema. Raises `ValueNotDecoded` where the schema cannot be read, and
    `Refused` where its library is not installed, which says nothing about the value.
    """
    kinds = {"AVRO": avro_decoder, "PROTOBUF": protobuf_decoder, "JSON": json_decoder}
    if schema.kind not in kinds:
        raise ValueNotDecoded(f"schema {schema_id} is of type {schema.kind}, not one of {', '.join(kinds)}")
    try:
        return kinds[schema.kind](schema)
    except ImportError as missing:
        raise Refused(f"schema {schema_id} needs {missing.name}: {INSTALL}") from None
    except Exception as problem:
        raise ValueNotDecoded(f"schema {schema_id} cannot be read: {problem}") from None


def json_decoder(schema: Schema) -> Decode:
    """A function that parses JSON. The schema is not used, because JSON describes itself."""
    return parse_json


def avro_decoder(schema: Schema) -> Decode:
    from fastavro import parse_schema, schemaless_reader  # type: ignore[import-not-found,import-untyped,unused-ignore]

    named: dict[str, Any] = {}
    for each in schema.references:
        parse_schema(parse_json(each), named_schemas=named)
    parsed = parse_schema(parse_json(schema.text), named_schemas=named)
    bounds = AvroBounds(parsed, named)

    def decode(payload: memoryview) -> object:
        bounds.check(payload)
        stream = io.BytesIO(payload)
        value = schemaless_reader(stream, parsed, None)
        if stream.tell() != len(payload):
            raise ValueNotDecoded(f"{len(payload) - stream.tell()} bytes are left over after the value")
        return without_uuids(value)

    return decode


def without_uuids(value: object) -> object:
    """Replace UUIDs by text, because Arrow does not accept UUID objects."""
    if isinstance(value, dict):
        return {key: without_uuids(each) for key, each in value.items()}
    if isinstance(value, list):
        return [without_uuids(each) for each in value]
    return str(value) if isinstance(value, UUID) else value


def protobuf_decoder(schema: Schema) -> Decode:
    from google.protobuf import descriptor_pool, message_factory  # type: ignore[import-untyped,unused-ignore]

    files = protobuf_files(schema)
    pool = descriptor_pool.DescriptorPool()
    for each in files.file:
        pool.AddSerializedFile(each.SerializeToString())
    names = [each.name for each in files.file]
    whole: Any = pool.FindFileByName(names[-1])
    classes: dict[tuple[int, ...], tuple[Any, ProtobufBounds]] = {}

    def decode(payload: memoryview) -> object:
        indexes, message = message_path(payload)
        found = classes.get(tuple(indexes))
        if found is None:
            types = list(whole.message_types_by_name.values())
            descriptor = types[indexes[0]]
            for index in indexes[1:]:
                descriptor = descriptor.nested_types[index]
            found = classes[tuple(indexes)] = message_factory.GetMessageClass(descriptor), ProtobufBounds(descriptor)
        kind, bounds = found
        bounds.check(message)
        return fields_of_message(kind.FromString(bytes(message)))

    return decode


def protobuf_files(schema: Schema) -> Any:
    """The FileDescriptorSet of a schema, whose last file is its own. Raises `ValueNotDecoded`."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet  # type: ignore[import-untyped,unused-ignore]
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped,unused-ignore]

    files = FileDescriptorSet()
    try:
        if schema.is_set:
            files.ParseFromString(schema.text)
        else:
            for text in (*schema.references, schema.text):
                files.file.add().ParseFromString(text)
    except DecodeError as problem:
        raise ValueNotDecoded(f"it is not a descriptor of Protobuf: {problem}") from None
    return files


def fields_of_message(message: Any) -> dict[str, object]:
    """All fields of a Protobuf message: enums as names, maps as pairs, an absent field that has presence as null."""
    found: dict[str, object] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            inner = field.message_type.fields_by_name["value"]
            found[field.name] = [(key, _scalar(value[key], inner)) for key in sorted(value)]
        elif field.is_repeated:
            found[field.name] = [_scalar(each, field) for each in value]
        elif field.has_presence and not message.HasField(field.name):
            found[field.name] = None
        else:
            found[field.name] = _scalar(value, field)
    return found


def _scalar(value: Any, field: Any) -> object:
    if field.message_type is not None:
        return fields_of_message(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known else str(value)
    return value


def as_text(value: object) -> str:
    """JSON of a decoded value: bytes in base64, times in ISO 8601, decimals as text."""

    def other(each: object) -> object:
        if isinstance(each, bytes):
            return base64.b64encode(each).decode()
        if isinstance(each, datetime | date | time):
            return each.isoformat()
        if isinstance(each, Decimal):
            return str(each)
        raise ValueNotDecoded(f"{type(each).__name__} has no form in JSON")

    return json.dumps(value, default=other)
