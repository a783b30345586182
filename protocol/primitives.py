"""The parts that all codecs of the protocol share: the types of buffers; variable-length integers, which `struct`
cannot read; CRC-32C (Castagnoli), the checksum of record batches and of producer snapshots; and the tagged section at
the end of every struct in a flexible version."""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Protocol, TypeAlias

BytesLike: TypeAlias = bytes | bytearray | memoryview
"""A buffer whose bytes can be read without a copy. Indexing yields integers."""


class FileRegion(Protocol):
    """A part of a file that the connection sends with sendfile(2), without reading it into memory."""

    def __len__(self) -> int:
        """The size in bytes."""


Chunk: TypeAlias = BytesLike | FileRegion
"""A piece of an encoded message: bytes, or a part of a file."""

UVARINT_SIZE_MAX = 5
TEXT_SIZE_MAX = 0x7FFF
"""The most bytes of a string. It is the limit of the int16 length, and is applied to varint lengths, too."""
VARLONG_SIZE_MAX = 10


class MalformedMessage(ValueError):
    """Raised if bytes do not follow the schema. The broker then closes the connection that sent them."""


def wrong_length(name: str, length: int) -> MalformedMessage:
    """The exception for a length or count that is negative or goes past the end of the message."""
    return MalformedMessage(f"{name} cannot have length {length} here")


def read_uvarint(buffer: BytesLike, position: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 32 bits. Returns its value and the position after it.

    Raises `MalformedMessage` if the varint has more than five bytes or 32 bits, and `IndexError` if the buffer ends
    within it.
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
    """Read the size of a compact string, whose encoding is the size plus one. Returns the size plus one and the
    position after it. Raises as `read_uvarint`, and `MalformedMessage` for a string of more than `TEXT_SIZE_MAX`
    bytes."""
    size, position = read_uvarint(buffer, position)
    if size > TEXT_SIZE_MAX + 1:
        raise MalformedMessage(f"a string of {size - 1} bytes")
    return size, position


def uvarint(value: int) -> bytes:
    """Encode a non-negative integer as an unsigned varint."""
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
    """Read a zig-zag varint of at most 32 bits. Returns its value and the position after it. Raises as
    `read_uvarint`."""
    raw, position = read_uvarint(buffer, position)
    return (raw >> 1) ^ -(raw & 1), position


def varint(value: int) -> bytes:
    """Encode a signed integer as a zig-zag varint. The encoding as a varlong is the same."""
    return uvarint(value << 1 if value >= 0 else (-value << 1) - 1)


def read_varlong(buffer: BytesLike, position: int) -> tuple[int, int]:
    """Read a zig-zag varint of at most 64 bits. Returns its value and the position after it. Raises as `read_uvarint`,
    with a limit of ten bytes and 64 bits."""
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


Crc32c: TypeAlias = Callable[[BytesLike, int], int]


def load_crc32c() -> Crc32c:
    """Load the C function of the `crc32c` package. It takes data and the checksum of the bytes before them, returns the
    checksum, and reads any buffer without a copy.

    The `__init__` of the package asks `importlib.metadata` for a version string, which costs 30 ms and 4 MB at start.
    Only the extension module is needed, so it is loaded without the package. A package with another layout is imported
    whole.
    """
    package = PathFinder.find_spec("crc32c")
    if package is not None and package.submodule_search_locations is not None:
        extension = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
        if extension is not None and extension.loader is not None:
            module = module_from_spec(extension)
            extension.loader.exec_module(module)
            function: Crc32c = module.crc32c
            return function
    from crc32c import crc32c as imported

    return imported


crc32c: Crc32c = load_crc32c()


TAGS_MAX = 1 << 10
"""The most tags that a tagged section without known tags may have. Skipping a tag takes time, but no memory."""


def read_tag(buffer: BytesLike, position: int) -> tuple[int, int, int]:
    """Read the beginning of an entry of a tagged section. Returns the tag, the position of its value, and the position
    after its value. Raises `MalformedMessage` if the value goes past the end of the message."""
    number, position = read_uvarint(buffer, position)
    size, position = read_uvarint(buffer, position)
    if size > len(buffer) - position:
        raise MalformedMessage(f"tag {number} ends outside the message")
    return number, position, position + size


def skip_tags(buffer: BytesLike, position: int) -> int:
    """Skip a tagged section. Returns the position after it. Raises `MalformedMessage` if it has more than `TAGS_MAX`
    tags."""
    count, position = read_uvarint(buffer, position)
    if count > TAGS_MAX:
        raise MalformedMessage(f"a section of {count} tags")
    for _ in range(count):
        _, _, position = read_tag(buffer, position)
    return position


def append_tags(append: Callable[[Chunk], None], section: list[tuple[int, list[Chunk]]]) -> None:
    """Encode a tagged section, and pass its pieces to `append`. `section` has (tag, pieces of the value) in ascending
    order of tags."""
    append(uvarint(len(section)))
    for number, chunks in section:
        append(uvarint(number) + uvarint(sum(map(len, chunks))))
        for chunk in chunks:
            append(chunk)
