"""Decodes keys and values in the wire format of a schema registry (moldau.console.schema.registry) into JSON: Avro,
Protobuf, JSON.

    frame of a value, or in a header ──▶ schema of the registry, fetched once ──▶ JSON, masked, searched and shown

A value without a header is taken for framed if it begins with a zero byte and an id.

If the registry does not answer, one request waits for `TIMEOUT_S`, and no other is made for `PAUSE_MS`. The records are
then shown as bytes, with a note.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from moldau.protocol.record_builder import Record

if TYPE_CHECKING:
    from moldau.tables.values.decoders import Decoder
    from moldau.tables.values.registry import SchemaId

TIMEOUT_S: Final = 3
PAUSE_MS: Final = 30_000
"""The time (ms) after which a schema that could not be fetched is requested again."""
SCHEMAS_MAX: Final = 500
"""The most schemas that are kept. When there are more, all are dropped and fetched again."""


class Schemas:
    """The schemas of one registry, with their decoders. `now_ms` is the monotonic clock."""

    def __init__(self, registry: str, now_ms: Callable[[], int]) -> None:
        self._registry = registry
        self._now_ms = now_ms
        self._decoders: dict[SchemaId, Decoder] = {}
        self._failed: dict[SchemaId, tuple[int, str]] = {}
        """The schemas that cannot be used, by id: the time at which each is requested again, and the reason."""
        self._silent_until_ms = 0

    def readable(self, record: Record) -> tuple[Record, str]:
        """Replace a key and a value in the registry's format by their JSON. Returns the record, and a note about the
        schemas and about what could not be decoded.
        """
        from moldau.tables.values.frames import KEY, VALUE, framed_data

        key, of_key = self._json_of(framed_data(record.key, record.headers, KEY))
        value, of_value = self._json_of(framed_data(record.value, record.headers, VALUE))
        notes = [f"{name}: {note}" for name, note in (("key", of_key), ("value", of_value)) if note]
        return record._replace(key=key, value=value), ", ".join(notes)

    def _json_of(self, data: bytes | None) -> tuple[bytes | None, str]:
        from moldau.tables.refusals import Refused
        from moldau.tables.values.decoders import as_text
        from moldau.tables.values.frames import may_be_framed, split_frame

        if data is None or not may_be_framed(data):
            return data, ""
        schema = ""
        try:
            framed = split_frame(data)
            schema = f"schema {framed.schema_id}"
            decoder = self._decoder(framed.schema_id)
            text = as_text(decoder.decode(framed.of_kind(decoder.schema.kind)))
        except Refused as problem:
            return data, str(problem)
        except Exception as problem:  # The libraries raise what Python raises on bytes that do not fit a schema.
            return data, f"{schema} does not fit: {type(problem).__name__}"
        return text.encode("utf-8", "surrogatepass"), schema

    def _decoder(self, schema_id: SchemaId) -> Decoder:
        """The decoder for a schema. Raises `Refused` if the schema cannot be used."""
        from moldau.tables.refusals import Refused
        from moldau.tables.values.decoders import Decoder, decoder_of
        from moldau.tables.values.registry import SchemaSource

        found = self._decoders.get(schema_id)
        if found is not None:
            return found
        now_ms = self._now_ms()
        again_ms, why = self._failed.get(schema_id, (0, ""))
        if now_ms < again_ms:
            raise Refused(why)
        if now_ms < self._silent_until_ms:
            raise Refused(f"schema {schema_id}: the registry did not answer a moment ago")
        try:
            schema = SchemaSource(self._registry, TIMEOUT_S).schema(schema_id)
            decoder = Decoder(schema, decoder_of(schema, schema_id))
        except Refused as problem:
            if self._now_ms() - now_ms >= TIMEOUT_S * 1000:
                self._silent_until_ms = self._now_ms() + PAUSE_MS
            if len(self._failed) >= SCHEMAS_MAX:
                self._failed.clear()
            self._failed[schema_id] = (now_ms + PAUSE_MS, str(problem))
            raise
        if len(self._decoders) >= SCHEMAS_MAX:
            self._decoders.clear()
        self._decoders[schema_id] = decoder
        return decoder
