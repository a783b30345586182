"""A record batch v2: its header, which is read without a copy and patched outside of the bytes that its checksum
covers, and a check of its records that builds no values.

Layout (big-endian): base offset 0-8, length 8-12 (bytes after it), partition leader epoch 12-16, magic 16, crc 17-21
(CRC-32C of 21 to the end), attributes 21-23, last offset delta 23-27, base timestamp 27-35, max timestamp 35-43,
producer id 43-51, producer epoch 51-53, base sequence 53-57, records count 57-61, records. The base offset and the
leader epoch are the two fields that a leader assigns; they are in the first 16 bytes, outside of the checksum.

A record: varint size of what follows; int8 attributes; varlong timestamp delta; varint offset delta; varint key size,
key; varint value size, value; varint count of headers; for each varint key size, key, varint value size, value. Size -1
is null.

The check (`walk`) is the inner loop of the produce path: ordinary typed Python that mypyc can compile (`python -m
building`), with the same results in both forms. Compiled code is fast only on `bytes`, so the receive buffer is copied
through a small window, which skips large values.
"""

from __future__ import annotations

import zlib
from enum import IntEnum
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Final

from moldau.protocol.compression import Codec
from moldau.protocol.primitives import BytesLike, MalformedMessage, crc32c

if TYPE_CHECKING:
    from mypy_extensions import i64

HEADER: Final = Struct(">qiibIhiqqqhii")
HEADER_SIZE: Final = HEADER.size
LOG_OVERHEAD: Final = 12
"""The size (bytes) of base offset and length. The length field does not count these bytes."""
LENGTH_MIN: Final = HEADER_SIZE - LOG_OVERHEAD
PREFIX_SIZE: Final = 16
"""The size (bytes) of base offset, length and leader epoch.

A leader overwrites these fields. All bytes after them are stored unchanged.
"""
MAGIC_POSITION: Final = 16
CRC_POSITION: Final = 17
ATTRIBUTES_POSITION: Final = 21
MAX_TIMESTAMP_POSITION: Final = 35
MAGIC: Final = 2
OLD_MESSAGE_FORMAT: Final = Struct(">qiIbb")
"""The format of the offset, length, crc, magic and attributes of a message of format 0 or 1
(`protocol/old_messages.py`)."""
OLD_MESSAGE_SIZE_MIN: Final = 26
"""The size (bytes) of the smallest message of format 0, whose key and value are empty or null. A batch of format 2 is
never that small."""
OLD_TIMESTAMP_SIZE: Final = 8
"""The size (bytes) of the timestamp of a message of format 1, which follows the attributes. Format 0 has no
timestamp."""

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
"""The names of the header's fields, in the order of the bytes."""


class BatchHeader:
    """The 13 fields of a batch header. It is mutable only because assigning the fields is the fastest way to build
    it."""

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
        """The size of the whole batch in bytes."""
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
        """The sequence number of the last record, which wraps from 2^31-1 to 0; -1 if the batch has no sequence."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return sequence_after(self.base_sequence, self.last_offset_delta)

    def __repr__(self) -> str:
        return f"BatchHeader({', '.join(f'{name}={getattr(self, name)}' for name in FIELDS)})"


def sequence_after(sequence: int, count: int) -> int:
    """The sequence number `count` records after `sequence`. Sequence numbers wrap from 2^31-1 to 0."""
    return (sequence + count) & SEQUENCE_MAX


def parse_header(buffer: BytesLike, position: int = 0, takes_old: bool = False) -> BatchHeader:
    """Read the header of the batch that starts at `position`. The rest of the batch need not be in the buffer.

    With `takes_old`, which is for stored bytes, the header of a message of format 0 or 1 is also accepted
    (`old_header`). Raises `MalformedMessage` for another magic, for a length that cannot hold a header, and if the
    buffer ends before the header does. Nothing is allocated for the claimed length; the caller checks whether the whole
    batch is in the buffer.
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
        if takes_old and may_be_old_message(buffer, position):
            return old_header(buffer, position)
        raise MalformedMessage(f"{len(buffer) - position} bytes cannot hold a batch header of {HEADER_SIZE}") from None
    if header.magic != MAGIC:
        if takes_old and may_be_old_message(buffer, position):
            return old_header(buffer, position)
        raise MalformedMessage(f"record batch magic {header.magic} is not {MAGIC}")
    if header.batch_length < LENGTH_MIN:
        raise MalformedMessage(f"record batch length {header.batch_length} is below {LENGTH_MIN}")
    return header


def may_be_old_message(buffer: BytesLike, position: int) -> bool:
    """Whether a message of format 0 or 1 may begin at `position`: the buffer has enough bytes for its fixed fields, and
    the magic is 0 or 1."""
    return len(buffer) - position >= OLD_MESSAGE_SIZE_MIN and buffer[position + MAGIC_POSITION] < MAGIC


def old_header(buffer: BytesLike, position: int) -> BatchHeader:
    """Read the header of a message of format 0 or 1, as a batch header with one offset, and without leader epoch and
    producer.

    The offset of a compressed message is that of its last inner message. Its first offset is known only after
    decompression (`old_messages.upgrade_messages`). Raises `MalformedMessage` for a length that cannot hold the
    message's fields.
    """
    header = BatchHeader()
    header.base_offset, header.batch_length, header.crc, header.magic, attributes = OLD_MESSAGE_FORMAT.unpack_from(
        buffer, position
    )
    timestamp, length_min = NO_TIMESTAMP, OLD_MESSAGE_SIZE_MIN - LOG_OVERHEAD
    if header.magic:
        (timestamp,) = INT64.unpack_from(buffer, position + OLD_MESSAGE_FORMAT.size)
        length_min += OLD_TIMESTAMP_SIZE
    if header.batch_length < length_min:
        raise MalformedMessage(f"length {header.batch_length} of a message of format {header.magic}")
    header.attributes = attributes & (CODEC_MASK | TIMESTAMP_TYPE_BIT if header.magic else CODEC_MASK)
    header.base_timestamp = header.max_timestamp = timestamp
    header.partition_leader_epoch = NO_LEADER_EPOCH
    header.producer_id, header.producer_epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
    header.base_sequence = NO_SEQUENCE
    header.last_offset_delta, header.records_count = 0, 1
    return header


def crc_is_valid(buffer: BytesLike, position: int, header: BatchHeader) -> bool:
    """Whether the batch, or the message of an older format, at `position` is whole and its checksum matches its
    bytes."""
    end = position + header.batch_length + LOG_OVERHEAD
    if end > len(buffer):
        return False
    view = buffer if type(buffer) is memoryview else memoryview(buffer)
    if header.magic != MAGIC:
        return zlib.crc32(view[position + MAGIC_POSITION : end]) == header.crc
    return crc32c(view[position + ATTRIBUTES_POSITION : end], 0) == header.crc


def whole_batch(buffer: BytesLike, position: int, end: int) -> BatchHeader | None:
    """The header of the batch, or of the message of an older format, at `position`; None if the batch goes past `end`.

    Raises `MalformedMessage` if no batch and no older message can begin at `position`. Of a header that is cut short,
    the fields that are in the buffer are checked.
    """
    remaining = end - position
    if remaining < HEADER_SIZE and not (remaining >= OLD_MESSAGE_SIZE_MIN and may_be_old_message(buffer, position)):
        refuse_impossible_start(buffer, position, remaining)
        return None
    header = parse_header(buffer, position, True)
    return header if header.batch_length + LOG_OVERHEAD <= remaining else None


def refuse_impossible_start(buffer: BytesLike, position: int, size: int) -> None:
    """Raise `MalformedMessage` if the `size` bytes at `position` cannot begin a batch or an older message. They are
    fewer bytes than a batch header has."""
    if size >= LOG_OVERHEAD:
        (length,) = INT32.unpack_from(buffer, position + INT64.size)
        is_batch = size > MAGIC_POSITION and buffer[position + MAGIC_POSITION] == MAGIC
        length_min = LENGTH_MIN if is_batch else OLD_MESSAGE_SIZE_MIN - LOG_OVERHEAD
        if length < length_min:
            raise MalformedMessage(f"record batch length {length} is below {length_min}")
    if size > MAGIC_POSITION and buffer[position + MAGIC_POSITION] > MAGIC:
        raise MalformedMessage(f"record batch magic is not {MAGIC}")


WINDOW_SIZE = 32 << 10
"""The number of bytes that are copied at a time. A larger record is read piece by piece."""
VARINT_SIZE_MAX = 5
RECORD_HEAD_SIZE_MAX = 1 + 10 + VARINT_SIZE_MAX + VARINT_SIZE_MAX
"""The most bytes of a record's attributes, timestamp delta, offset delta and key size together."""

OFFSETS_DIFFER = 1
"""The flag of `walk_records` that the offset deltas are not consecutive."""
KEY_IS_NULL = 2
"""The flag of `walk_records` that at least one record has no key."""
VALUE_IS_NULL = 4
"""The flag of `walk_records` that at least one record has no value."""


def walk_records(buffer: BytesLike, position: int, end: int, count: int, first: int = 0) -> tuple[int, int, int]:
    """Check the framing of `count` records, which must fill `buffer[position:end]`. Returns flags (`OFFSETS_DIFFER`,
    `KEY_IS_NULL`, `VALUE_IS_NULL`), and the lowest and the highest timestamp delta.

    `first` is the required offset delta of the first record. Raises `MalformedMessage` if the framing of a record, the
    count and the end do not agree.
    """
    try:
        return walk(buffer, position, end, count, first)
    except IndexError:
        raise MalformedMessage("a record goes past the end of its batch") from None


def walk(buffer: BytesLike, position: i64, end: i64, count: i64, first: i64) -> tuple[int, int, int]:
    flags: i64 = 0
    low: i64 = 0x7FFFFFFFFFFFFFFF
    high: i64 = -0x7FFFFFFFFFFFFFFF - 1
    base: i64 = position  # The position in the buffer at which the window begins.
    window = bytes(buffer[base : min(base + WINDOW_SIZE, end)])
    limit: i64 = len(window)
    at: i64 = 0  # The current position in the window.
    index: i64
    for index in range(first, first + count):
        if at + VARINT_SIZE_MAX > limit and base + limit < end:
            base += at
            window = bytes(buffer[base : min(base + WINDOW_SIZE, end)])
            limit = len(window)
            at = 0
        size: i64 = window[at]
        at += 1
        if size >= 0x80:
            size, at = read_raw_varint(window, at - 1)
        record_end: i64 = at + ((size >> 1) ^ -(size & 1))
        if record_end > limit:
            size = record_end - at
            window, base = window_of_record(buffer, base + at, size, end)
            limit = len(window)
            record_end = min(size, limit)
            at = 0
        delta: i64 = window[at + 1]  # Byte 0 holds the attributes; no bit of them is defined.
        at += 2
        if delta >= 0x80:
            delta, at = read_raw_varlong(window, at - 1)
        delta = ((delta >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(delta & 1)
        if delta < low:
            low = delta
        if delta > high:
            high = delta
        delta = window[at]
        at += 1
        if delta >= 0x80:
            delta, at = read_raw_varint(window, at - 1)
        if delta != index << 1:
            flags |= OFFSETS_DIFFER
        size = window[at]
        at += 1
        if size >= 0x80:
            size, at = read_raw_varint(window, at - 1)
        if size & 1 == 0:
            at += size >> 1
        elif size == 1:
            flags |= KEY_IS_NULL
        else:
            raise MalformedMessage(f"record {index} has a key of a negative size")
        size = window[at]
        at += 1
        if size >= 0x80:
            size, at = read_raw_varint(window, at - 1)
        if size & 1 == 0:
            at += size >> 1
        elif size == 1:
            flags |= VALUE_IS_NULL
        else:
            raise MalformedMessage(f"record {index} has a value of a negative size")
        size = window[at]
        at += 1
        if size != 0:
            at = skip_headers(window, at - 1)
        if at != record_end:
            raise MalformedMessage(f"record {index} is not as long as it says")
    if base + at != end:
        raise MalformedMessage(f"{end - base - at} bytes after the {count} records of the batch")
    return flags, low, high


def whole_records(window: bytes, count_max: int) -> tuple[int, int, int]:
    """Find the whole records, at most `count_max`, at the beginning of the window. Returns their number, their size in
    bytes, and the size of the record after them (0 if it is unknown). Both sizes include the size fields."""
    limit: i64 = len(window)
    left: i64 = count_max
    at: i64 = 0
    end: i64 = 0
    size: i64
    while left > 0:
        try:
            size, at = read_raw_varint(window, end)
        except IndexError:
            break
        if size & 1:
            raise MalformedMessage("a record has a negative size")
        at += size >> 1
        if at > limit:
            return count_max - left, end, at - end
        end = at
        left -= 1
    return count_max - left, end, 0


def largest_record(window: bytes, count: int) -> int:
    """The size (bytes) of the largest of the `count` whole records at the beginning of the window, without its size
    field."""
    at: i64 = 0
    left: i64 = count
    largest: i64 = 0
    size: i64
    while left > 0:
        size, at = read_raw_varint(window, at)
        size >>= 1
        at += size
        largest = size if size > largest else largest
        left -= 1
    return largest


def skip_headers(window: bytes, at: i64) -> i64:
    """The position after the headers of a record, whose count is at `at`. Raises `IndexError` if the window ends before
    them."""
    count: i64
    size: i64
    count, at = read_raw_varint(window, at)
    if count & 1:
        raise MalformedMessage("a record has a negative count of headers")
    count >>= 1
    while count > 0:
        size, at = read_raw_varint(window, at)
        if size & 1:
            raise MalformedMessage("a record header has no key")
        at += size >> 1
        size, at = read_raw_varint(window, at)
        if size & 1 == 0:
            at += size >> 1
        elif size != 1:
            raise MalformedMessage("a record header has a value of a negative size")
        count -= 1
    return at


def read_raw_varint(window: bytes, at: i64) -> tuple[i64, i64]:
    """Read the varint at `at`, below 2^32, without zig-zag decoding. Returns it and the position after it."""
    value: i64 = 0
    shift: i64 = 0
    while shift < 35:
        byte: i64 = window[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, at
        shift += 7
    raise MalformedMessage("varint exceeds 32 bits")


def read_raw_varlong(window: bytes, at: i64) -> tuple[i64, i64]:
    """Read the varlong at `at` without zig-zag decoding. Returns it and the position after it. In compiled code the
    64th bit is the sign."""
    value: i64 = 0
    shift: i64 = 0
    while shift < 70:
        byte: i64 = window[at]
        at += 1
        if shift == 63 and byte > 1:
            break
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise MalformedMessage("varlong exceeds 64 bits")


def window_of_record(buffer: BytesLike, position: i64, size: i64, end: i64) -> tuple[bytes, i64]:
    """Copy the record of `size` bytes at `position` into a window. Returns the window and the position in the buffer at
    which it begins. The window of a large record lacks the key and the value."""
    if position + size > end:
        raise MalformedMessage(f"a record of {size} bytes goes past the end of its batch")
    if size > WINDOW_SIZE:
        framing = without_contents(buffer, position, position + size)
        return framing, position + size - len(framing)
    return bytes(buffer[position : min(position + WINDOW_SIZE, end)]), position


def without_contents(buffer: BytesLike, position: i64, end: i64) -> bytes:
    """Copy a large record without the contents of its key and value, so that its framing fits into one window."""
    head = bytes(buffer[position : min(position + RECORD_HEAD_SIZE_MAX, end)])
    at: i64 = 1
    size: i64
    _, at = read_raw_varlong(head, at)
    _, at = read_raw_varint(head, at)
    framing = bytearray(head[:at])
    size, at = read_raw_varint(head, at)
    position += at
    position += append_empty_field(framing, size)
    head = bytes(buffer[position : min(position + VARINT_SIZE_MAX, end)])
    size, at = read_raw_varint(head, 0)
    position += at
    position += append_empty_field(framing, size)
    framing += buffer[position:end]
    return bytes(framing)


def append_empty_field(framing: bytearray, raw_size: i64) -> i64:
    """Append the size of an empty field, or of a null field, instead of `raw_size`, which is not zig-zag decoded.
    Returns the number of bytes of the field's content, which the caller skips."""
    if raw_size & 1 == 0:
        framing.append(0)
        return raw_size >> 1
    if raw_size != 1:
        raise MalformedMessage("a large record has a key or a value of a negative size")
    framing.append(1)
    return 0
