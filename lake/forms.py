"""Forms: how the bytes of a key or of a value are decoded into a value of a column.

| form | bytes | type |
|---|---|---|
| string, short, int, long, float, double | as Kafka's serializers write them | that of the form's name |
| registry | with a frame of a schema registry, which may be in a header | that of the schema which the frame names |
| connect | JSON with the schema part of Kafka Connect | that of the schema part |
| json | JSON | that of a JSON Schema, or of a sample of the values |

Without a form bytes are stored as they are (`binary`). With the envelope of Debezium a value is a change event. It
becomes the row after the change, or `DELETION`:

    {"op": "u", "before": {…}, "after": {…}, "source": {…}, "ts_ms": …}

| op | of | becomes |
|---|---|---|
| c, r, u | an insert, a row of a snapshot, an update | the row `after` |
| d | a delete | the row of the key is deleted; the tombstone that follows deletes nothing more |
| t, m | a truncate, a message of the source | a misfit: it is of no key |
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from struct import Struct, error
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa  # type: ignore[import-untyped]

from moldau.tables.values.bounds import parse_json
from moldau.tables.values.connect_types import connect_type
from moldau.tables.values.converters import ConvertedType, converter_to
from moldau.tables.values.decoders import SCHEMAS_MAX, FramedValueDecoder, decode_payload, plain_json
from moldau.tables.values.frames import FramedPayload, message_path, split_frame
from moldau.tables.values.registry import Schema, SchemaId, SchemaSource, ValueNotDecoded
from moldau.tables.values.topic_types import NoSample, given_type, json_schema_of
from moldau.tables.values.value_types import type_of

BINARY, REGISTRY, CONNECT, JSON = "binary", "registry", "connect", "json"
AFTER: Final = "after"
_ROWS: Final = ("c", "r", "u")
_OTHERS: Final = {"t": "a truncate of the source", "m": "a message of the source"}
DELETION: Final = object()
"""The result of decoding a change event that deletes a row."""


class ValueReading(NamedTuple):
    """The facts about a value's bytes that are known before they are decoded: its kind, its type, and the decoder.
    Values of one kind may share this object.
    """

    kind: Hashable
    """The kind of the value. `converted_type` returns the same for all values of one kind."""
    converted_type: Callable[[], ConvertedType]
    """A function that returns the type of the values. Raises `ValueNotDecoded`."""
    decode: Callable[[bytes], object]
    """A function that decodes the bytes that were examined. Raises `ValueNotDecoded`."""
    schema: str = ""
    """The name of the schema for error messages; empty if the value does not name a schema."""


class Form(Protocol):
    """A form of keys or values: it tells the type of a value and decodes it."""

    reads_headers: bool
    """Whether a header of the record may have the frame of a value."""

    def read(self, data: bytes) -> ValueReading:
        """Examine the bytes of a value. Raises `ValueNotDecoded` if they are not of this form. Raises
        `RegistryNotReached` or `Refused` if that cannot be told."""


class NumberFormat(NamedTuple):
    """The layout (big-endian) and the Arrow type of a number that a serializer of Kafka writes."""

    layout: Struct
    type: pa.DataType


NUMBERS: Final = {
    "short": NumberFormat(Struct(">h"), pa.int32()),
    "int": NumberFormat(Struct(">i"), pa.int32()),
    "long": NumberFormat(Struct(">q"), pa.int64()),
    "float": NumberFormat(Struct(">f"), pa.float32()),
    "double": NumberFormat(Struct(">d"), pa.float64()),
}
STRING: Final = "string"
SERIALIZED: Final = (STRING, *NUMBERS)


class KafkaSerializerForm:
    """The form of a text or a number that a serializer of Kafka writes."""

    reads_headers = False

    def __init__(self, name: str) -> None:
        self._name = name
        converted = ConvertedType(pa.string() if name == STRING else NUMBERS[name].type, _as_it_is)
        self._read = ValueReading(name, lambda: converted, self._decoded)

    def read(self, data: bytes) -> ValueReading:
        return self._read

    def _decoded(self, data: bytes) -> object:
        try:
            return data.decode() if self._name == STRING else NUMBERS[self._name].layout.unpack(data)[0]
        except (UnicodeDecodeError, error):
            raise ValueNotDecoded(f"{len(data)} bytes are not of the type {self._name}") from None


class RegistryForm:
    """The form of values that a schema registry has framed."""

    reads_headers = True

    def __init__(self, source: SchemaSource, *, is_enveloped: bool = False) -> None:
        self._values = FramedValueDecoder(source)
        self._is_enveloped = is_enveloped
        self._reads: dict[SchemaId, ValueReading] = {}
        """The results of `read`, by schema, for schemas whose values are all of one type."""
        self._split: tuple[bytes, FramedPayload] = (b"", FramedPayload(0, memoryview(b"")))
        """The value that was split last, with its frame and its payload."""

    def _framed(self, data: bytes) -> FramedPayload:
        """Split a value. It is not split again for its decoding, which follows its reading."""
        if self._split[0] is not data:
            self._split = (data, split_frame(data))
        return self._split[1]

    def read(self, data: bytes) -> ValueReading:
        framed = self._framed(data)
        schema_id = framed.schema_id
        known = self._reads.get(schema_id)
        if known is not None:
            return known
        decoder = self._values.decoder(schema_id)
        is_of_paths = decoder.schema.kind == "PROTOBUF"
        path = tuple(message_path(framed.of_kind(decoder.schema.kind))[0]) if is_of_paths else ()
        read = ValueReading(
            (schema_id, *path),
            partial(self._converted_type, decoder.schema, path),
            lambda data: decode_payload(decoder, self._framed(data)),
            f"schema {schema_id}",
        )
        if not is_of_paths:
            if len(self._reads) >= SCHEMAS_MAX:
                self._reads.clear()
            self._reads[schema_id] = read
        return read

    def _converted_type(self, schema: Schema, path: tuple[int, ...]) -> ConvertedType:
        found = type_of(schema, path)
        kind = row_type(found.type) if self._is_enveloped else found.type
        return ConvertedType(kind, converter_to(kind) if found.needs_conversion else _as_it_is)


class ConnectForm:
    """The form of Kafka Connect's JSON with a schema part."""

    reads_headers = False

    def __init__(self, *, is_enveloped: bool = False) -> None:
        self._is_enveloped = is_enveloped

    def read(self, data: bytes) -> ValueReading:
        found = plain_json(data)
        if not isinstance(found, dict) or found.keys() != {"schema", "payload"} or found["schema"] is None:
            raise ValueNotDecoded("the value has no schema part: it is not an object of schema and payload")
        schema, payload = found["schema"], found["payload"]
        return ValueReading(json.dumps(schema), lambda: self._converted_type(schema), lambda _: payload)

    def _converted_type(self, schema: Any) -> ConvertedType:
        if self._is_enveloped:
            fields = schema.get("fields", []) if isinstance(schema, dict) else []
            schema = next((each for each in fields if isinstance(each, dict) and each.get("field") == AFTER), None)
            if schema is None:
                raise ValueNotDecoded("the schema part is not that of change events of Debezium: it lacks after")
        return connect_type(schema)


class JsonForm:
    """The form of plain JSON. Its JSON Schema is given, or is made from the first values."""

    reads_headers = False

    def __init__(self, schema: Mapping[str, Any] | None, *, is_enveloped: bool = False) -> None:
        """`schema`: the JSON Schema; None if it is to be learned from values. Raises `Refused` for a schema that gives
        no type."""
        self._is_enveloped = is_enveloped
        self.schema: Mapping[str, Any] | None = None
        self._read: ValueReading | None = None
        if schema is not None:
            self._take(schema)

    def learn(self, values: Iterable[bytes]) -> None:
        """Make the schema from a sample of values, if there is none yet. If the sample gives no type, there is no
        schema either."""
        if self.schema is None:
            with suppress(NoSample):
                self._take(json_schema_of(_rows_of(values) if self._is_enveloped else values))

    def _take(self, schema: Mapping[str, Any]) -> None:
        kind = given_type(schema)
        converted = ConvertedType(kind, converter_to(kind))
        self.schema, self._read = schema, ValueReading(JSON, lambda: converted, plain_json)

    def read(self, data: bytes) -> ValueReading:
        if self._read is None:
            raise ValueNotDecoded("no value before this one has given a type to the column")
        return self._read


def _rows_of(values: Iterable[bytes]) -> Iterable[bytes]:
    """Yield the rows after the changes of change events, as JSON. Other values are left out."""
    for value in values:
        try:
            row = row_of(parse_json(value))
        except ValueError:
            continue
        if row is not DELETION:
            yield json.dumps(row).encode()


def _as_it_is(value: Any) -> Any:
    return value


def row_of(event: Any) -> Any:
    """Return the row after the change of a change event, or `DELETION`. Raises `ValueNotDecoded` for a value that is
    not the change of a row."""
    if not isinstance(event, Mapping) or "op" not in event:
        hint = ": it has a schema part (--schema connect)" if _has_schema_part(event) else ""
        raise ValueNotDecoded(f"the value is not a change event of Debezium{hint or ': it has no op'}")
    op = event["op"]
    if op == "d":
        return DELETION
    if op not in _ROWS:
        raise ValueNotDecoded(f"the change event is {_OTHERS.get(op, f'of the op {op!r}')}, which is of no key")
    row = event.get(AFTER)
    if row is None:
        raise ValueNotDecoded(f"the change event of the op {op} has no row after the change")
    return row


def row_type(event: pa.DataType) -> pa.DataType:
    """Return the type of rows, from the type of their change events. Raises `ValueNotDecoded`."""
    if not pa.types.is_struct(event) or event.get_field_index(AFTER) < 0 or event.get_field_index("op") < 0:
        raise ValueNotDecoded("the schema is not that of change events of Debezium: it lacks op or after")
    return event.field(AFTER).type


def _has_schema_part(event: Any) -> bool:
    return isinstance(event, Mapping) and event.keys() == {"schema", "payload"}
