"""The partition of a key, as the producers of Java choose it: by the murmur2 hash."""

from __future__ import annotations

from typing import Final

SEED: Final = 0x9747B28C
M: Final = 0x5BD1E995
MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The murmur2 hash of some bytes, as an unsigned number of 32 bits."""
    size = len(data)
    digest = (SEED ^ size) & MASK
    whole = size & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * M & MASK
        digest = digest * M & MASK ^ (word ^ word >> 24) * M & MASK
    if size != whole:
        digest = (digest ^ int.from_bytes(data[whole:], "little")) * M & MASK
    digest = (digest ^ digest >> 13) * M & MASK
    return digest ^ digest >> 15


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key, from 0 to the number of partitions, exclusive."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
