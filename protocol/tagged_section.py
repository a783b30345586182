"""The tagged section at the end of every struct in a flexible version: reading, skipping and writing its entries."""

from __future__ import annotations

from collections.abc import Callable

from moldau.protocol.primitives import BytesLike, Chunk, MalformedMessage, read_uvarint, uvarint

TAGS_MAX = 1 << 10
"""The most skipped tags of one section: they take no memory, but time."""


def read_tag(buffer: BytesLike, position: int) -> tuple[int, int, int]:
    """Read the head of an entry: (tag, position of its value, position after its value)."""
    number, position = read_uvarint(buffer, position)
    size, position = read_uvarint(buffer, position)
    if size > len(buffer) - position:
        raise MalformedMessage(f"tag {number} ends outside the message")
    return number, position, position + size


def skip_tags(buffer: BytesLike, position: int) -> int:
    """The position after a section whose tags are all unknown."""
    count, position = read_uvarint(buffer, position)
    if count > TAGS_MAX:
        raise MalformedMessage(f"a section of {count} tags")
    for _ in range(count):
        _, _, position = read_tag(buffer, position)
    return position


def append_tags(append: Callable[[Chunk], None], section: list[tuple[int, list[Chunk]]]) -> None:
    """Append a section: the pieces of each value under its tag, tags ascending."""
    append(uvarint(len(section)))
    for number, chunks in section:
        append(uvarint(number) + uvarint(sum(map(len, chunks))))
        for chunk in chunks:
            append(chunk)
