"""Building a record batch v2 from records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from moldau.protocol.compression import Codec, compress
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.primitives import BytesLike, crc32c, varint
from moldau.protocol.record_batch import (
    ATTRIBUTES_POSITION,
    CONTROL_BIT,
    CRC_POSITION,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    UINT32,
)

RecordHeader: TypeAlias = tuple[str, bytes | None]
NEXT_OFFSET = -1
"""The offset of a record that follows directly after the record before it."""
NULL = varint(-1)


class Record(NamedTuple):
    """A record outside of a batch. A record whose value is None is a tombstone; the timestamp is in ms since the
    epoch."""

    key: bytes | None = None
    value: bytes | None = None
    timestamp: int = NO_TIMESTAMP
    headers: tuple[RecordHeader, ...] = ()
    offset: int = NEXT_OFFSET


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    compression_level: int | None = None,
    log_append_time_ms: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
    partition_leader_epoch: int = NO_LEADER_EPOCH,
    delete_horizon_ms: int | None = None,
    last_offset: int | None = None,
) -> bytes:
    """Build one batch of all the records, in the given order.

    With `log_append_time_ms` the timestamp type is log append time, and every record has this timestamp. `last_offset`
    is for compaction: a batch keeps its end offset even if its last records, or all of them, are removed. Offsets must
    ascend from `base_offset`.
    """
    body = bytearray()
    base_timestamp = NO_TIMESTAMP if delete_horizon_ms is None else delete_horizon_ms
    max_timestamp = NO_TIMESTAMP
    count = 0
    offset = base_offset - 1
    for record in records:
        if count == 0 and delete_horizon_ms is None:
            base_timestamp = record.timestamp
        max_timestamp = max(max_timestamp, record.timestamp)
        assert record.offset == NEXT_OFFSET or record.offset > offset, "offsets ascend"
        offset = offset + 1 if record.offset == NEXT_OFFSET else record.offset
        append_record(body, record, record.timestamp - base_timestamp, offset - base_offset)
        count += 1
    assert last_offset is None or last_offset >= offset, "the last offset covers the records"
    assert count or last_offset is not None, "a batch without records says where it ends"
    attributes = (
        codec
        | (0 if log_append_time_ms is None else TIMESTAMP_TYPE_BIT)
        | (TRANSACTIONAL_BIT if is_transactional else 0)
        | (CONTROL_BIT if is_control else 0)
        | (0 if delete_horizon_ms is None else DELETE_HORIZON_BIT)
    )
    return assemble(
        (compress(codec, body, compression_level),),
        base_offset,
        partition_leader_epoch,
        attributes,
        (offset if last_offset is None else last_offset) - base_offset,
        base_timestamp,
        max_timestamp if log_append_time_ms is None else log_append_time_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )


def assemble(
    parts: Sequence[BytesLike],
    base_offset: int,
    partition_leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    records_count: int,
) -> bytes:
    """Build a batch from its header fields and its encoded records. The records may be in several parts, which are
    copied once. Length and checksum are computed."""
    header = bytearray(
        HEADER.pack(
            base_offset,
            HEADER_SIZE - LOG_OVERHEAD + sum(map(len, parts)),
            partition_leader_epoch,
            MAGIC,
            0,
            attributes,
            last_offset_delta,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            records_count,
        )
    )
    checksum = crc32c(header[ATTRIBUTES_POSITION:], 0)
    for part in parts:
        checksum = crc32c(part, checksum)
    UINT32.pack_into(header, CRC_POSITION, checksum)
    return b"".join((header, *parts))


def write_checksum(batch: bytearray) -> None:
    """Compute and write the checksum of the one batch that fills the buffer."""
    with memoryview(batch) as view:
        UINT32.pack_into(batch, CRC_POSITION, crc32c(view[ATTRIBUTES_POSITION:], 0))


def append_record(out: bytearray, record: Record, timestamp_delta: int, offset_delta: int) -> None:
    """Append one encoded record: its size, then its bytes."""
    body = bytearray(1)  # No attribute is defined.
    body += varint(timestamp_delta)
    body += varint(offset_delta)
    append_nullable(body, record.key)
    append_nullable(body, record.value)
    body += varint(len(record.headers))
    for name, value in record.headers:
        append_nullable(body, name.encode())
        append_nullable(body, value)
    out += varint(len(body))
    out += body


def append_nullable(out: bytearray, data: BytesLike | None) -> None:
    if data is None:
        out += NULL
    else:
        out += varint(len(data))
        out += data
