"""Decoding payloads by their schemas, into dicts, lists and scalars that Arrow takes."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Set
from datetime import date, datetime, time
from decimal import Decimal
from functools import partial
from math import isfinite, isnan
from time import monotonic
from typing import Final, NamedTuple, TypeAlias

from moldau.tables.refusals import Refused
from moldau.tables.values.avro import avro_decoder
from moldau.tables.values.bounds import parse_json
from moldau.tables.values.exact_json import exact_number, exact_text
from moldau.tables.values.frames import ID_MAGIC, FramedPayload, split_frame
from moldau.tables.values.protobuf import JsonValue, protobuf_decoder
from moldau.tables.values.registry import Schema, SchemaId, SchemaSource, ValueNotDecoded

Decode: TypeAlias = Callable[[memoryview], object]
INSTALL: Final = "pip install 'moldau[schemas]'"
SCHEMAS_MAX: Final = 500
"""The most schemas that are kept in memory. If there are more, all are dropped and fetched again."""
ASKED_AGAIN_S: Final = 10
"""The time (seconds) after which a schema that the source did not have is requested again."""
NAMED_MAX: Final = 10
"""The most fields in the message of an error."""
NOT_HELD: Final = (TypeError, ValueError, OverflowError)
"""The exceptions, besides Arrow's own, that `pa.array` raises if its type cannot hold a decoded value."""


class Decoder(NamedTuple):
    """A schema, and the function that decodes payloads of this schema."""

    schema: Schema
    decode: Decode


class NoDecoder(NamedTuple):
    """The reason why no value of a schema can be decoded."""

    reason: str
    until_s: float
    """The time (seconds of a monotonic clock) until which the schema is not requested again. It may be registered
    meanwhile."""


class FramedValueDecoder:
    """Decodes framed values. Each schema is fetched once, unless there are more than `SCHEMAS_MAX`. A schema that the
    source does not have is requested again after `ASKED_AGAIN_S`, because a registry may lag behind another one."""

    def __init__(self, source: SchemaSource, now_s: Callable[[], float] = monotonic) -> None:
        """`now_s`: a monotonic clock."""
        self._source = source
        self._now_s = now_s
        self._decoders: dict[SchemaId, Decoder | NoDecoder] = {}

    def decode(self, value: bytes, wanted: Set[str] = frozenset()) -> object:
        """Decode one framed value.

        `wanted`: names of fields. A record of Avro or Protobuf that has none of them is of another type, and raises
        `ValueNotDecoded`. Also raises what the method `decoder` and the function `decode_payload` raise.
        """
        framed = split_frame(value)
        decoder = self.decoder(framed.schema_id)
        found = decode_payload(decoder, framed)
        if wanted and decoder.schema.kind != "JSON" and isinstance(found, dict) and wanted.isdisjoint(found):
            fields = f" but {', '.join(sorted(found)[:NAMED_MAX])}" if found else ""
            raise ValueNotDecoded(f"the value is of another type: it has no field of the result{fields}")
        return found

    def decoder(self, schema_id: SchemaId) -> Decoder:
        """Return the decoder of a schema. Raises `ValueNotDecoded`, `RegistryNotReached`, and what `decoder_of`
        raises.
        """
        found = self._decoders.get(schema_id)
        if found is None or (isinstance(found, NoDecoder) and found.until_s <= self._now_s()):
            if len(self._decoders) >= SCHEMAS_MAX:
                self._decoders.clear()
            found = self._decoders[schema_id] = self._fetched(schema_id)
        if isinstance(found, NoDecoder):
            raise ValueNotDecoded(found.reason)
        return found

    def _fetched(self, schema_id: SchemaId) -> Decoder | NoDecoder:
        try:
            schema = self._source.schema(schema_id)
            return Decoder(schema, decoder_of(schema, schema_id))
        except ValueNotDecoded as problem:
            return NoDecoder(str(problem), self._now_s() + ASKED_AGAIN_S)


def decode_payload(decoder: Decoder, framed: FramedPayload) -> object:
    """Decode a payload by a decoder. Any error of the library becomes `ValueNotDecoded`."""
    try:
        return decoder.decode(framed.of_kind(decoder.schema.kind))
    except ValueNotDecoded:
        raise
    except Exception as problem:  # fastavro and protobuf raise what Python raises on hostile bytes
        raise ValueNotDecoded(
            f"the value does not fit schema {framed.schema_id}: {problem or type(problem).__name__}"
        ) from None


def decoder_of(schema: Schema, schema_id: SchemaId) -> Decode:
    """Make the function that decodes payloads of a schema. Raises `ValueNotDecoded` if the schema cannot be read.
    Raises `Refused` if the library for the schema is not installed: its values may be valid."""
    kinds = {"AVRO": avro_decoder, "PROTOBUF": protobuf_decoder, "JSON": json_decoder}
    if schema.kind not in kinds:
        raise ValueNotDecoded(f"schema {schema_id} is of type {schema.kind}, not one of {', '.join(kinds)}")
    try:
        return kinds[schema.kind](schema)
    except ImportError as missing:
        raise Refused(f"schema {schema_id} needs {missing.name}: {INSTALL}") from None
    except Exception as problem:
        raise ValueNotDecoded(f"schema {schema_id} cannot be read: {problem}") from None


def plain_json(value: bytes) -> object:
    """Parse a value that is plain JSON, without a frame. An `ExactNumber` may stand for a number. Raises
    `ValueNotDecoded`."""
    try:
        return parse_json(value, exact_number)
    except ValueNotDecoded:
        raise
    except ValueError as problem:
        framed = ": a schema registry has framed it (registry)" if value[:1] == bytes([ID_MAGIC]) else f": {problem}"
        raise ValueNotDecoded(f"the value is not JSON{framed}") from None


def json_decoder(schema: Schema) -> Decode:
    """Return a function that parses JSON, in which an `ExactNumber` may stand for a number. The schema is not used,
    because JSON describes itself."""
    return partial(parse_json, parse_float=exact_number)


def as_text(value: object) -> str:
    """Return a decoded value as JSON text. Bytes become base64, times ISO 8601. Decimals become texts, and so do the
    numbers that JSON does not have (NaN, Infinity).
    """
    try:
        text = json.dumps(value, default=_other, allow_nan=False, ensure_ascii=False)
        text.encode()
    except ValueError:  # a number that is none, or half of a surrogate pair, which is an escape then
        text = json.dumps(_without_nan(value), default=_other)
    return exact_text(text)


def _other(value: object) -> object:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, JsonValue):
        return value.value
    raise ValueNotDecoded(f"{type(value).__name__} has no form in JSON")


def _without_nan(value: object) -> object:
    if isinstance(value, float) and not isfinite(value):
        return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _without_nan(each) for key, each in value.items()}
    return [_without_nan(each) for each in value] if isinstance(value, list | tuple) else value
