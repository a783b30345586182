"""Which codecs the batches of a partition's segments hold, read from their headers alone."""

from __future__ import annotations

import struct
from pathlib import Path

NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
LENGTH_END = 12
ATTRIBUTES_AT = 21
HEADER_SIZE = 61


def codecs_stored(directory: Path) -> set[str]:
    return {codec for segment in sorted(directory.glob("*.log")) for codec in _codecs_of(segment)}


def _codecs_of(segment: Path) -> set[str]:
    codecs = set()
    content = segment.read_bytes()
    position = 0
    while position + HEADER_SIZE <= len(content):
        (length,) = struct.unpack_from(">i", content, position + 8)
        (attributes,) = struct.unpack_from(">h", content, position + ATTRIBUTES_AT)
        if length <= 0:
            break
        codecs.add(NAMES[attributes & 7])
        position += LENGTH_END + length
    return codecs
