"""Variable-length integers, the one wire type that `struct` cannot read, and the types of buffers."""

from __future__ import annotations

from typing import Protocol, TypeAlias

BytesLike: TypeAlias = bytes | bytearray | memoryview
"""A buffer whose bytes can be read in place. Indexing yields integers."""


class FileRegion(Protocol):
    """Bytes of a file that the connection sends with sendfile(2), without reading them."""

    def __len__(self) -> int:
        """Size in bytes."""


Chunk: TypeAlias = BytesLike | FileRegion
"""A piece of an encoded message."""

UVARINT_SIZE_MAX = 5
TEXT_SIZE_MAX = 0x7FFF
"""Limit on the bytes of a string: that of the int16 length, applied to varint lengths as well."""
VARLONG_SIZE_MAX = 10


class MalformedMessage(ValueError):
    """Bytes do not follow the schema: the broker closes the connection that sent them."""


def wrong_length(name: str, length: int) -> MalformedMessage:
    """A length or count that is negative or goes past the end of the message."""
    return MalformedMessage(f"{name} cannot have length {length} here")


def read_uvarint(buffer: BytesLike, position: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 32 bits: (value, position after it).

    Raises `MalformedMessage` past five bytes or 32 bits and `IndexError` past the end of the buffer.
    """
    value = shift = 0
    for _ in range(UVARINT_SIZE_MAX):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, position
        shift += 7
    raise MalformedMessage("unsigned varint exceeds 32 bits")


def read_text_size(buffer: BytesLike, position: int) -> tuple[int, int]:
    """Read the size of a compact string, which counts one more; errors as `read_uvarint`, and past `TEXT_SIZE_MAX`."""
    size, position = read_uvarint(buffer, position)
    if size > TEXT_SIZE_MAX + 1:
        raise MalformedMessage(f"a string of {size - 1} bytes")
    return size, position


def uvarint(value: int) -> bytes:
    """The unsigned varint of a non-negative integer."""
    if value < 0x80:
        return SMALL_UVARINTS[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    groups = []
    while value >= 0x80:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


SMALL_UVARINTS = [bytes([value]) for value in range(0x80)]


def read_varint(buffer: BytesLike, position: int) -> tuple[int, int]:
    """Read a zig-zag varint of at most 32 bits: (value, position after it). Errors as `read_uvarint`."""
    raw, position = read_uvarint(buffer, position)
    return (raw >> 1) ^ -(raw & 1), position


def varint(value: int) -> bytes:
    """The zig-zag varint of a signed integer (also the varlong: the encoding is the same)."""
    return uvarint(value << 1 if value >= 0 else (-value << 1) - 1)


def read_varlong(buffer: BytesLike, position: int) -> tuple[int, int]:
    """Read a zig-zag varint of at most 64 bits: (value, position after it). Errors as `read_uvarint`."""
    value = shift = 0
    for _ in range(VARLONG_SIZE_MAX):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFFFFFFFFFF:
                break
            return (value >> 1) ^ -(value & 1), position
        shift += 7
    raise MalformedMessage("varlong exceeds 64 bits")
