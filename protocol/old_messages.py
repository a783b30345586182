"""Messages of formats 0 and 1, which Apache Kafka wrote before 0.11: they are read, and never written.

Clusters that were upgraded for years still have segments of them. Apache Kafka 4 stores them unchanged and sends them
unchanged to clients and followers; nothing converts them and no client may produce them. Moldau does the same:
`protocol/record_batch.py` reads headers and checksums, and offsets and bytes go through the log unchanged. Code that
reads the records gets them through this module as records of a batch v2.

Layout (big-endian): offset 0-8, length 8-12 (bytes after it), crc 12-16 (CRC-32 of 16 to the end), magic 16, attributes
17 (bits 0-2 codec, in format 1 bit 3 timestamp type), in format 1 a timestamp of 8 bytes, int32 size and key, int32
size and value; size -1 is null.

A compressed message has no key, and its value contains messages of the same format, compressed together. In format 0
the inner messages have absolute offsets. In format 1 their offsets are relative, mostly from 0 on, and the outer
message has the absolute offset of the last inner message. With log append time all of them have the timestamp of the
outer message.
"""

from __future__ import annotations

from itertools import pairwise
from struct import error as StructError
from typing import Final

from moldau.protocol.compression import LZ4_MAGIC, Codec, decompress
from moldau.protocol.primitives import BytesLike, MalformedMessage
from moldau.protocol.record_batch import (
    INT32,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    OLD_MESSAGE_FORMAT,
    OLD_TIMESTAMP_SIZE,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    TimestampType,
    may_be_old_message,
    old_header,
    parse_header,
)
from moldau.protocol.record_builder import Record, append_record, assemble

LZ4_CONTENT_SIZE_BIT: Final = 0x08
PRIME_1, PRIME_2, PRIME_3, PRIME_4, PRIME_5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
"""The constants of XXH32."""
UINT32_MASK: Final = 0xFFFFFFFF


def messages_of(buffer: BytesLike, position: int, header: BatchHeader, *, size_max: int) -> list[Record]:
    """Decode the messages at `position`, in the order of their offsets: one plain message, or all messages that a
    compressed message contains.

    Raises `MalformedMessage` if the framing is wrong, or its subclass `DecompressedSizeExceeded`. The caller verifies
    the checksum.
    """
    message = message_at(buffer, position, header)
    if not header.is_compressed:
        return [message]
    if message.value is None:
        raise MalformedMessage(f"the compressed message at offset {header.base_offset} has no value")
    stored = message.value
    if header.codec is Codec.LZ4 and not header.magic:
        stored = with_right_checksum(stored)
    run = bytes(decompress(header.codec, stored, size_max=size_max))
    inner: list[Record] = []
    at = 0
    while at < len(run):
        if not may_be_old_message(run, at):
            raise MalformedMessage(f"the compressed message at offset {header.base_offset} holds no whole messages")
        each = old_header(run, at)
        if each.magic != header.magic or each.is_compressed:
            raise MalformedMessage(f"the compressed message at offset {header.base_offset} holds one of another kind")
        inner.append(message_at(run, at, each))
        at += each.size
    if not inner:
        raise MalformedMessage(f"the compressed message at offset {header.base_offset} is empty")
    shift = header.base_offset - inner[-1].offset if header.magic else 0
    append_time = header.max_timestamp if header.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    return [
        each._replace(offset=each.offset + shift, timestamp=each.timestamp if append_time is None else append_time)
        for each in inner
    ]


def message_at(buffer: BytesLike, position: int, header: BatchHeader) -> Record:
    """Decode the one message at `position`, without decompressing its value. Raises `MalformedMessage`."""
    end = position + header.size
    at = position + OLD_MESSAGE_FORMAT.size + (OLD_TIMESTAMP_SIZE if header.magic else 0)
    if end > len(buffer):
        raise MalformedMessage(f"{len(buffer) - position} bytes cannot hold a message of {header.size}")
    key, at = read_nullable_bytes(buffer, at, end)
    value, at = read_nullable_bytes(buffer, at, end)
    if at != end:
        raise MalformedMessage(f"the message at offset {header.base_offset} is not as long as it says")
    return Record(key, value, header.max_timestamp, (), header.base_offset)


def read_nullable_bytes(buffer: BytesLike, at: int, end: int) -> tuple[bytes | None, int]:
    """Read a nullable field, which begins with its int32 size. Returns its bytes (None for null) and the position after
    the field. Raises `MalformedMessage`."""
    try:
        (size,) = INT32.unpack_from(buffer, at)
    except StructError:
        raise MalformedMessage("a field of a message goes past its end") from None
    at += INT32.size
    if size == -1:
        return None, at
    if size < 0 or at + size > end:
        raise MalformedMessage(f"a field of {size} bytes in a message with {end - at} left")
    return bytes(buffer[at : at + size]), at + size


def encoded_records(buffer: BytesLike, position: int, header: BatchHeader, *, size_max: int) -> tuple[bytes, int]:
    """Encode the old messages at `position` as the records of a batch v2. Returns the records and their number. Their
    offsets and timestamps are relative to those of `header`: for a compressed message all offset deltas but the last
    are negative, because its header has the last offset. Raises as `messages_of`."""
    messages = messages_of(buffer, position, header, size_max=size_max)
    return encode_messages(messages, header.base_offset, header.base_timestamp), len(messages)


def encode_messages(messages: list[Record], base_offset: int, base_timestamp: int) -> bytes:
    body = bytearray()
    for each in messages:
        append_record(body, each, each.timestamp - base_timestamp, each.offset - base_offset)
    return bytes(body)


def upgrade_messages(
    buffer: BytesLike, position: int, header: BatchHeader, *, size_max: int
) -> tuple[BatchHeader, bytes]:
    """The messages at `position` as a batch v2 without compression, after its header. Offsets, timestamps and the
    timestamp type are those of the messages; a timestamp of format 0 is -1. Raises as `messages_of`."""
    messages = messages_of(buffer, position, header, size_max=size_max)
    offsets = [each.offset for each in messages]
    if offsets[0] < 0 or any(later <= earlier for earlier, later in pairwise(offsets)):
        raise MalformedMessage(f"the offsets in the message at offset {header.base_offset} do not ascend")
    is_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    batch = assemble(
        (encode_messages(messages, offsets[0], messages[0].timestamp),),
        offsets[0],
        NO_LEADER_EPOCH,
        TIMESTAMP_TYPE_BIT if is_append_time else 0,
        header.base_offset - offsets[0],
        messages[0].timestamp,
        header.max_timestamp if is_append_time else max(each.timestamp for each in messages),
        NO_PRODUCER_ID,
        NO_PRODUCER_EPOCH,
        NO_SEQUENCE,
        len(messages),
    )
    return parse_header(batch), batch


def with_right_checksum(frame: bytes) -> bytes:
    """Correct the checksum in the header of an LZ4 frame, as the specification of LZ4 requires it.

    Producers of format 0 computed it over the magic, too (KIP-57), and no LZ4 decoder accepts that. Readers of format 0
    do not check it.
    """
    start = len(LZ4_MAGIC)
    if len(frame) <= start:
        return frame
    end = start + 2 + (8 if frame[start] & LZ4_CONTENT_SIZE_BIT else 0)
    return b"".join((frame[:end], bytes((xxh32(frame[start:end]) >> 8 & 0xFF,)), frame[end + 1 :]))


def xxh32(data: bytes) -> int:
    """The XXH32 hash, with seed 0, of the header of an LZ4 frame: fewer than 16 bytes."""
    assert len(data) < 16
    value = PRIME_5 + len(data)
    words = len(data) // 4 * 4
    for at in range(0, words, 4):
        value = value + int.from_bytes(data[at : at + 4], "little") * PRIME_3 & UINT32_MASK
        value = rotated_left(value, 17) * PRIME_4 & UINT32_MASK
    for byte in data[words:]:
        value = value + byte * PRIME_5 & UINT32_MASK
        value = rotated_left(value, 11) * PRIME_1 & UINT32_MASK
    value = (value ^ value >> 15) * PRIME_2 & UINT32_MASK
    value = (value ^ value >> 13) * PRIME_3 & UINT32_MASK
    return value ^ value >> 16


def rotated_left(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & UINT32_MASK
