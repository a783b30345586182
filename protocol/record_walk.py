"""The walk over the records of a batch: their framing, offsets, timestamps and keys, without building a value.

This is the inner loop of the produce path: ordinary typed Python that mypyc can compile
(`python -m building`), with the same results in both forms. Compiled code is fast only on `bytes`, so
the receive buffer is copied through a small window, which skips large values.

A record: varint size of what follows; int8 attributes; varlong timestamp delta; varint offset delta; varint key size,
key; varint value size, value; varint count of headers; for each varint key size, key, varint value size, value. Size -1
is null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.protocol.primitives import BytesLike, MalformedMessage

if TYPE_CHECKING:
    from mypy_extensions import i64

WINDOW_SIZE = 32 << 10
"""The bytes that are copied at a time; a larger record is read piece by piece."""
VARINT_SIZE_MAX = 5
RECORD_HEAD_SIZE_MAX = 1 + 10 + VARINT_SIZE_MAX + VARINT_SIZE_MAX
"""The most bytes of attributes, timestamp delta, offset delta and key size."""

OFFSETS_DIFFER = 1
"""The offset deltas are not 0, 1, 2 ..."""
KEY_IS_NULL = 2
"""At least one record has no key."""
VALUE_IS_NULL = 4
"""At least one record is a tombstone."""


def walk_records(buffer: BytesLike, position: int, end: int, count: int, first: int = 0) -> tuple[int, int, int]:
    """Walk `count` records that must fill `buffer[position:end]`: (flags, lowest and highest timestamp delta).

    `first` is the required offset delta of the first record.
    Raises `MalformedMessage` where the framing of a record, the count and the end do not agree.
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
    """The whole records at the beginning: (their count, their size, the size of the one after them, 0 if unknown)."""
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
    """The size of the largest of `count` whole records, as their length fields state it."""
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
    """The position after the headers, whose count is at `at`. Raises `IndexError` past the end."""
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
    """The varint at `at` before zig-zag decoding, below 2^32, and the position after it."""
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
    """The varlong at `at` before zig-zag decoding, and the position after it. Compiled, the 64th bit is the sign."""
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
    """A window with the whole record at `position`, and where the window begins; a large record without its
    contents."""
    if position + size > end:
        raise MalformedMessage(f"a record of {size} bytes goes past the end of its batch")
    if size > WINDOW_SIZE:
        framing = without_contents(buffer, position, position + size)
        return framing, position + size - len(framing)
    return bytes(buffer[position : min(position + WINDOW_SIZE, end)]), position


def without_contents(buffer: BytesLike, position: i64, end: i64) -> bytes:
    """A large record with its key and value replaced by empty ones, so that its framing fits into one window."""
    head = bytes(buffer[position : min(position + RECORD_HEAD_SIZE_MAX, end)])
    at: i64 = 1
    size: i64
    _, at = read_raw_varlong(head, at)
    _, at = read_raw_varint(head, at)
    framing = bytearray(head[:at])
    size, at = read_raw_varint(head, at)
    position += at
    position += append_emptied(framing, size)
    head = bytes(buffer[position : min(position + VARINT_SIZE_MAX, end)])
    size, at = read_raw_varint(head, 0)
    position += at
    position += append_emptied(framing, size)
    framing += buffer[position:end]
    return bytes(framing)


def append_emptied(framing: bytearray, raw_size: i64) -> i64:
    """Append the size of a null or an empty field. Returns the bytes of contents to skip."""
    if raw_size & 1 == 0:
        framing.append(0)
        return raw_size >> 1
    if raw_size != 1:
        raise MalformedMessage("a large record has a key or a value of a negative size")
    framing.append(1)
    return 0
