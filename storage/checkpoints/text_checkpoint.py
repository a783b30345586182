"""The text frame of Kafka's checkpoints: version, number of lines, the lines."""

from __future__ import annotations

VERSION = 0


class CorruptCheckpoint(ValueError):
    """The file does not have the format of a checkpoint; the message has the path and the reason."""


def format_checkpoint(lines: list[str]) -> bytes:
    """The content of a checkpoint with these lines."""
    return "".join([f"{VERSION}\n{len(lines)}\n", *(f"{line}\n" for line in lines)]).encode()


def parse_checkpoint(data: bytes, path: str) -> list[str]:
    """The lines of a checkpoint. Raises `CorruptCheckpoint` where the text does not have this format.

    An empty file has no lines: Apache Kafka creates its checkpoints empty before it first writes them.
    """
    if not data:
        return []
    try:
        version, count, *lines = data.decode().splitlines()
    except (UnicodeDecodeError, ValueError):
        raise CorruptCheckpoint(f"{path}: not a checkpoint") from None
    if version != str(VERSION):
        raise CorruptCheckpoint(f"{path}: version {version!r} is not {VERSION}")
    if not count.isdigit() or int(count) != len(lines):
        raise CorruptCheckpoint(f"{path}: {len(lines)} lines, but {count!r} in the second line")
    return lines
