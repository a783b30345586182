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

from protocol.checksum import crc32c
from protocol.compression import Codec
from protocol.primitives import BytesLike, MalformedMessage

HEADER = Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size
LOG_OVERHEAD = 12
"""Size of base offset and length, which the length does not count."""
LENGTH_MIN = HEADER_SIZE - LOG_OVERHEAD
PREFIX_SIZE = 16
"""Size of base offset, length and leader epoch: what a leader writes anew; all after it goes to the log as it came."""
MAGIC_POSITION = 16
CRC_POSITION = 17
ATTRIBUTES_POSITION = 21
MAX_TIMESTAMP_POSITION = 35
MAGIC = 2

CODEC_MASK = 0x07
TIMESTAMP_TYPE_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1
SEQUENCE_MAX = 0x7FFFFFFF

PREFIX = Struct(">qii")
INT16 = Struct(">h")
INT32 = Struct(">i")
UINT32 = Struct(">I")
INT64 = Struct(">q")

CODECS = tuple(Codec)


class TimestampType(IntEnum):
    """Bit 3 of the attributes: who said when a record happened."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


FIELDS = (
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
    """The 13 fields of a batch header. Assigned field by field, the fastest way; treat it as a value all the same."""

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
        """Bytes of the whole batch."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        """Raises `MalformedMessage` for the codec numbers that nobody has defined."""
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
        """When compaction may drop the tombstones of this batch; it is kept in the place of the base timestamp."""
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
    Nothing is allocated for what the length claims: whether the batch is there is the caller's question.
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
    """Whether the batch at `position` is whole and its bytes are what its checksum says."""
    end = position + header.batch_length + LOG_OVERHEAD
    if end > len(buffer):
        return False
    view = buffer if type(buffer) is memoryview else memoryview(buffer)
    return crc32c(view[position + ATTRIBUTES_POSITION : end], 0) == header.crc


class BatchIterator:
    """The complete batches of a buffer, back to back, as (position, header); what is left over is no error.

    Exhausted, `position` is the end of the last complete batch, and `partial_size` the count of bytes after it, which
    are the beginning of a batch whose rest is not here (a fetch answer and a torn log both end so).
    """

    __slots__ = ("buffer", "end", "position")

    def __init__(self, buffer: BytesLike, position: int, end: int) -> None:
        self.buffer = buffer
        self.position = position
        self.end = end

    def __iter__(self) -> BatchIterator:
        return self

    def __next__(self) -> tuple[int, BatchHeader]:
        position = self.position
        remaining = self.end - position
        if remaining < HEADER_SIZE:
            self.refuse_nonsense(remaining)
            raise StopIteration
        header = parse_header(self.buffer, position)
        size = header.batch_length + LOG_OVERHEAD
        if size > remaining:
            raise StopIteration
        self.position = position + size
        return position, header

    def refuse_nonsense(self, remaining: int) -> None:
        """A partial header is read as far as it goes, so that garbage is not taken for the beginning of a batch."""
        if remaining >= LOG_OVERHEAD:
            (length,) = INT32.unpack_from(self.buffer, self.position + INT64.size)
            if length < LENGTH_MIN:
                raise MalformedMessage(f"record batch length {length} is below {LENGTH_MIN}")
        if remaining > MAGIC_POSITION and self.buffer[self.position + MAGIC_POSITION] != MAGIC:
            raise MalformedMessage(f"record batch magic is not {MAGIC}")

    @property
    def partial_size(self) -> int:
        return self.end - self.position


def iterate_batches(buffer: BytesLike, position: int = 0, end: int | None = None) -> BatchIterator:
    """The batches of `buffer[position:end]`. The iterator raises `MalformedMessage` where no batch can begin."""
    return BatchIterator(buffer, position, len(buffer) if end is None else end)
