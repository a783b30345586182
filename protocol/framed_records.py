"""The frame of the records of two internal topics: frame version, record type, record version, then the record.

`__cluster_metadata` and `__remote_log_metadata` have the same frame; each topic has its own record types.
"""

from __future__ import annotations

from typing import Final

from moldau.protocol.compiler import Decoder, decoder_of
from moldau.protocol.primitives import BytesLike, MalformedMessage, read_uvarint, uvarint
from moldau.protocol.records.stored_structs import encode_stored
from moldau.protocol.schema import spec_of

FRAME_VERSION: Final = 1
"""The version of the frame. Version 0 was that of Kafka's 2.8 preview, which no release reads any more."""


class FramedRecords:
    """The encoder and decoder of the framed records of one topic.

    `what` names the kind of record in error messages. `declarations` has the members of the module that declares the
    records (`vars` of the module).
    """

    def __init__(self, what: str, declarations: dict[str, object]) -> None:
        self._what = what
        self._declarations = declarations
        self._classes: dict[int, type[object]] = {}
        self._decoders: dict[tuple[int, int, int], Decoder[object]] = {}

    def classes(self) -> dict[int, type[object]]:
        """The declared classes of records by type number."""
        if not self._classes:
            for declared in self._declarations.values():
                if isinstance(declared, type) and "__spec__" in declared.__dict__:
                    spec = declared.__dict__["__spec__"]
                    if spec is not None:
                        self._classes[spec.key] = declared
        return self._classes

    def encode(self, record: object, version: int) -> bytes:
        """Encode a record in a schema version, in its frame. Raises `UnreadableRecord`."""
        record_type = spec_of(type(record)).key
        assert record_type is not None, f"{type(record).__name__} is not a {self._what} record"
        return uvarint(FRAME_VERSION) + uvarint(record_type) + uvarint(version) + encode_stored(record, version)

    def decode(self, value: BytesLike) -> object:
        """Decode a framed record. Raises `MalformedMessage` for a frame, type or version that is not declared."""
        try:
            frame_version, position = read_uvarint(value, 0)
            record_type, position = read_uvarint(value, position)
            version, position = read_uvarint(value, position)
        except IndexError:
            raise MalformedMessage(f"{len(value)} bytes cannot hold the frame of a {self._what} record") from None
        # The decoders are cached, because a start reads records by the 100,000. Refused types are not cached.
        decoder = self._decoders.get((frame_version, record_type, version))
        if decoder is None:
            decoder = self._decoder(frame_version, record_type, version)
            self._decoders[frame_version, record_type, version] = decoder
        record, end = decoder(value, position)
        if end != len(value):
            raise MalformedMessage(f"{len(value) - end} bytes left over after {type(record).__name__}")
        return record

    def _decoder(self, frame_version: int, record_type: int, version: int) -> Decoder[object]:
        if frame_version != FRAME_VERSION:
            raise MalformedMessage(f"{self._what} record frame version {frame_version} is not {FRAME_VERSION}")
        cls = self.classes().get(record_type)
        if cls is None:
            raise MalformedMessage(f"unknown {self._what} record type {record_type}")
        if version not in spec_of(cls).versions:
            raise MalformedMessage(f"{cls.__name__} has no version {version}")
        return decoder_of(cls, version)
