"""Changes the base timestamp of a batch, and with it the timestamp delta of each of its records.

Ordinary typed Python that `building/` compiles, with the same results in both forms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.protocol.primitives import varint
from moldau.protocol.record_walk import read_raw_varint, read_raw_varlong

if TYPE_CHECKING:
    from mypy_extensions import i64


def shifted(records: bytes, shift: int) -> bytes:
    """The records with `shift` (ms) added to every timestamp delta. The caller has checked the framing."""
    out = bytearray()
    at: i64 = 0
    end: i64 = len(records)
    while at < end:
        size: i64
        raw: i64
        size, at = read_raw_varint(records, at)
        record_end: i64 = at + (size >> 1)
        attributes = records[at : at + 1]
        raw, at = read_raw_varlong(records, at + 1)
        delta: i64 = ((raw >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(raw & 1)
        encoded = varint(delta + shift)
        out += varint(1 + len(encoded) + record_end - at)
        out += attributes
        out += encoded
        out += records[at:record_end]
        at = record_end
    return bytes(out)
