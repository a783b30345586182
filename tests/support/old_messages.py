"""Messages of formats 0 and 1 as brokers and producers before 0.11 wrote them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

from moldau.protocol.compression import LZ4_MAGIC, Codec, compress
from moldau.protocol.old_messages import xxh32
from moldau.protocol.record_builder import Record

APPEND_TIME = 0x08


def message(record: Record, magic: int, *, attributes: int = 0) -> bytes:
    """One message with the offset of the record."""
    body = bytes((magic, attributes)) + (struct.pack(">q", record.timestamp) if magic else b"")
    for field in (record.key, record.value):
        body += struct.pack(">i", -1 if field is None else len(field)) + (field or b"")
    whole = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", record.offset, len(whole)) + whole


def messages(records: Sequence[Record], magic: int) -> bytes:
    return b"".join(message(each, magic) for each in records)


def wrapper(records: Sequence[Record], magic: int, codec: Codec, *, append_time_ms: int | None = None) -> bytes:
    """The compressed message of some records; in format 1 with offsets that count from 0 inside."""
    first = records[0].offset if magic else 0
    inner = messages([each._replace(offset=each.offset - first) for each in records], magic)
    value = compress(codec, inner)
    if codec is Codec.LZ4 and not magic:
        value = with_old_checksum(value)
    latest = max(each.timestamp for each in records) if append_time_ms is None else append_time_ms
    attributes = codec | (0 if append_time_ms is None else APPEND_TIME)
    return message(Record(None, value, latest, (), records[-1].offset), magic, attributes=attributes)


def with_old_checksum(frame: bytes) -> bytes:
    """The checksum of the frame's header as old producers computed it, over the magic too (KIP-57)."""
    end = len(LZ4_MAGIC) + 2
    return frame[:end] + bytes((xxh32(frame[:end]) >> 8 & 0xFF,)) + frame[end + 1 :]


def old_records(first_offset: int, count: int, magic: int, *, start_ms: int = 1_600_000_000_000) -> list[Record]:
    """Records with keys, nulls and ascending times; of format 0 without times."""
    return [
        Record(
            None if offset % 5 == 4 else f"key-{offset % 3}".encode(),
            None if offset % 7 == 6 else f"value {offset} ".encode() * (1 + offset % 4),
            start_ms + offset * 10 if magic else -1,
            (),
            offset,
        )
        for offset in range(first_offset, first_offset + count)
    ]


def old_segment(first_offset: int = 0) -> tuple[bytes, list[Record]]:
    """The messages of a segment that saw both formats and each codec of theirs, and their records as a reader gets
    them."""
    offset, data, records = first_offset, b"", []
    for magic in (0, 1):
        for codec in (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
            some = old_records(offset, 4, magic)
            data += messages(some, magic) if codec is Codec.NONE else wrapper(some, magic, codec)
            records += some
            offset += 4
    late = old_records(offset, 3, 1)
    append_time_ms = late[-1].timestamp + 5_000
    data += wrapper(late, 1, Codec.GZIP, append_time_ms=append_time_ms)
    records += [each._replace(timestamp=append_time_ms) for each in late]
    return data, records
