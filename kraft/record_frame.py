"""The frame around a record of the metadata log: how it is encoded and decoded."""

from __future__ import annotations

from typing import Final

from moldau.protocol.framed_records import FramedRecords
from moldau.protocol.primitives import BytesLike
from moldau.protocol.records import metadata

RECORDS: Final = FramedRecords("metadata", vars(metadata))


def record_classes() -> dict[int, type[object]]:
    """The declared classes of metadata records by their type number."""
    return RECORDS.classes()


def encode_record(record: object, version: int) -> bytes:
    """Encode a metadata record in a schema version, in its frame. Raises `UnreadableRecord`."""
    return RECORDS.encode(record, version)


def decode_record(value: BytesLike) -> object:
    """Decode a framed metadata record. Raises `MalformedMessage` for a frame, type or version that is not declared."""
    return RECORDS.decode(value)
