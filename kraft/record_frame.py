"""The frame around a record of the metadata log: frame version, record type, record version, then the record."""

from __future__ import annotations

from functools import cache
from typing import Final

from protocol.compiler import Decoder, decoder_of, encode
from protocol.primitives import BytesLike, MalformedMessage, read_uvarint, uvarint
from protocol.records import metadata
from protocol.schema import spec_of

FRAME_VERSION: Final = 1
"""Version 0 is that of Kafka's 2.8 preview, which no release reads any more."""


@cache
def record_classes() -> dict[int, type[object]]:
    """The declared records by type."""
    declared = (value for value in vars(metadata).values() if isinstance(value, type) and "__spec__" in value.__dict__)
    keyed = ((value.__dict__["__spec__"], value) for value in declared)
    return {spec.key: value for spec, value in keyed if spec is not None}


def encode_record(record: object, version: int) -> bytes:
    """The value of a data record: `record` in `version`, framed."""
    record_type = spec_of(type(record)).key
    assert record_type is not None, f"{type(record).__name__} is not a metadata record"
    return uvarint(FRAME_VERSION) + uvarint(record_type) + uvarint(version) + encode(record, version)


def decode_record(value: BytesLike) -> object:
    """The record in a frame. Raises `MalformedMessage` for a frame, type or version that is not declared."""
    try:
        frame_version, position = read_uvarint(value, 0)
        record_type, position = read_uvarint(value, position)
        version, position = read_uvarint(value, position)
    except IndexError:
        raise MalformedMessage(f"{len(value)} bytes cannot hold the frame of a metadata record") from None
    record, end = _decoder(frame_version, record_type, version)(value, position)
    if end != len(value):
        raise MalformedMessage(f"{len(value) - end} bytes left over after {type(record).__name__}")
    return record


@cache
def _decoder(frame_version: int, record_type: int, version: int) -> Decoder[object]:
    """Looked up once each: a start reads records by the 100,000. What is refused is not remembered."""
    if frame_version != FRAME_VERSION:
        raise MalformedMessage(f"metadata record frame version {frame_version} is not {FRAME_VERSION}")
    cls = record_classes().get(record_type)
    if cls is None:
        raise MalformedMessage(f"unknown metadata record type {record_type}")
    if version not in spec_of(cls).versions:
        raise MalformedMessage(f"{cls.__name__} has no version {version}")
    return decoder_of(cls, version)
