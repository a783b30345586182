"""The frame around a record of the metadata log."""

from __future__ import annotations

from typing import Final

from protocol.framed_records import FramedRecords
from protocol.primitives import BytesLike
from protocol.records import metadata

RECORDS: Final = FramedRecords("metadata", vars(metadata))


def record_classes() -> dict[int, type[object]]:
    """The declared records by type."""
    return RECORDS.classes()


def encode_record(record: object, version: int) -> bytes:
    """The value of a data record: `record` in `version`, framed."""
    return RECORDS.encode(record, version)


def decode_record(value: BytesLike) -> object:
    """The record in a frame. Raises `MalformedMessage` for a frame, type or version that is not declared."""
    return RECORDS.decode(value)
