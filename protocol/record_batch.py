"""The header of a record batch v2, read in place and patched without touching what its checksum covers.

Layout (big-endian): base offset 0-8, length 8-12 (bytes after it), partition leader epoch 12-16, magic 16, crc 17-21
(CRC-32C of 21 to the end), attributes 21-23, last offset delta 23-27, base timestamp 27-35, max timestamp 35-43,
producer id 43-51, producer epoch 51-53, base sequence 53-57, records count 57-61, records. The base offset and the
leader epoch are the two fields that a leader assigns; they lie in the first 16 bytes, outside of the checksum.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from struct import error as StructError
from typing import Final

from moldau.protocol.checksum import crc32c
from moldau.protocol.compression import Codec
from moldau.protocol.primitives import BytesLike, MalformedMessage

HEADER: Final = Struct(">qiibIhiqqqhii")
HEADER_SIZE: Final = HEADER.size
LOG_OVERHEAD: Final = 12
"""Size of base offset and length, which the length does not count."""
LENGTH_MIN: Final = HEADER_SIZE - LOG_OVERHEAD
PREFIX_SIZE: Final = 16
"""Size of base offset, length and leader epoch.

A leader overwrites these; all bytes after them are stored unchanged.
"""
MAGIC_POSITION: Final = 16
CRC_POSITION: Final = 17
ATTRIBUTES_POSITION: Final = 21
MAX_TIMESTAMP_POSITION: Final = 35
MAGIC: Final = 2

CODEC_MASK: Final = 0x07
TIMESTAMP_TYPE_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_LEADER_EPOCH: Final = -1
SEQUENCE_MAX: Final = 0x7FFFFFFF

PREFIX: Final = Struct(">qii")
INT16: Final = Struct(">h")
INT32: Final = Struct(">i")
UINT32: Final = Struct(">I")
INT64: Final = Struct(">q")

CODECS: Final = tuple(Codec)


class TimestampType(IntEnum):
    """Bit 3 of the attributes: whether the producer (create time) or the broker (append time) set the timestamps."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


FIELDS: Final = (
    "base_offset",
    "batch_length",
    "partition_leader_epoch",
    "magic",
    "crc",
    "attributes",
    "last_offset_delta",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "records_count",
)
"""The fields in the order of the bytes."""


class BatchHeader:
    """The 13 fields of a batch header. Mutable only because assigning the fields is the fastest way to build it."""

    __slots__ = FIELDS

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size(self) -> int:
        """Size of the whole batch in bytes."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        """The codec of the batch. Raises `MalformedMessage` for an undefined codec number."""
        number = self.attributes & CODEC_MASK
        if number >= len(CODECS):
            raise MalformedMessage(f"unknown compression type id {number}")
        return CODECS[number]

    @property
    def is_compressed(self) -> bool:
        return self.attributes & CODEC_MASK != 0

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType.LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_BIT else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time (ms) from which on compaction may remove the tombstones of this batch.

        It is stored in place of the base timestamp.
        """
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record, wrapping from 2^31-1 to 0; -1 where there is none."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return sequence_after(self.base_sequence, self.last_offset_delta)

    def __repr__(self) -> str:
        return f"BatchHeader({', '.join(f'{name}={getattr(self, name)}' for name in FIELDS)})"


def sequence_after(sequence: int, count: int) -> int:
    """The producer sequence `count` records later: sequences wrap from 2^31-1 to 0."""
    return (sequence + count) & SEQUENCE_MAX


def parse_header(buffer: BytesLike, position: int = 0) -> BatchHeader:
    """Read the header of the batch that starts at `position`; the rest of the batch need not be in the buffer.

    Raises `MalformedMessage` when fewer than 61 bytes are there, the length cannot hold a header or the magic is not 2.
    Nothing is allocated for the claimed length; the caller checks whether the whole batch is there.
    """
    header = BatchHeader()
    try:
        (
            header.base_offset,
            header.batch_length,
            header.partition_leader_epoch,
            header.magic,
            header.crc,
            header.attributes,
            header.last_offset_delta,
            header.base_timestamp,
            header.max_timestamp,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.records_count,
        ) = HEADER.unpack_from(buffer, position)
    except StructError:
        raise MalformedMessage(f"{len(buffer) - position} bytes cannot hold a batch header of {HEADER_SIZE}") from None
    if header.magic != MAGIC:
        raise MalformedMessage(f"record batch magic {header.magic} is not {MAGIC}")
    if header.batch_length < LENGTH_MIN:
        raise MalformedMessage(f"record batch length {header.batch_length} is below {LENGTH_MIN}")
    return header


def crc_is_valid(buffer: BytesLike, position: int, header: BatchHeader) -> bool:
    """Whether the batch at `position` is whole and its checksum matches its bytes."""
    end = position + header.batch_length + LOG_OVERHEAD
    if end > len(buffer):
        return False
    view = buffer if type(buffer) is memoryview else memoryview(buffer)
    return crc32c(view[position + ATTRIBUTES_POSITION : end], 0) == header.crc


def whole_batch(buffer: BytesLike, position: int, end: int) -> BatchHeader | None:
    """The header of the batch at `position`; None where the batch does not end before `end`. Raises `MalformedMessage`
    where no batch can begin there; of a header that is cut short the bytes that exist are checked."""
    remaining = end - position
    if remaining < HEADER_SIZE:
        refuse_nonsense(buffer, position, remaining)
        return None
    header = parse_header(buffer, position)
    return header if header.batch_length + LOG_OVERHEAD <= remaining else None


def refuse_nonsense(buffer: BytesLike, position: int, size: int) -> None:
    """Refuse bytes, fewer than a header, that cannot be the beginning of a batch. Raises `MalformedMessage`."""
    if size >= LOG_OVERHEAD:
        (length,) = INT32.unpack_from(buffer, position + INT64.size)
        if length < LENGTH_MIN:
            raise MalformedMessage(f"record batch length {length} is below {LENGTH_MIN}")
    if size > MAGIC_POSITION and buffer[position + MAGIC_POSITION] != MAGIC:
        raise MalformedMessage(f"record batch magic is not {MAGIC}")
