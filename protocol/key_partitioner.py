"""The partition of a record with a key, as Java producers choose it: by the murmur2 hash of the key."""

from __future__ import annotations

from typing import Final

MURMUR2_SEED: Final = 0x9747B28C
M: Final = 0x5BD1E995
UINT32_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The murmur2 hash of bytes, as an unsigned 32-bit number."""
    size = len(data)
    digest = (MURMUR2_SEED ^ size) & UINT32_MASK
    whole = size & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * M & UINT32_MASK
        digest = digest * M & UINT32_MASK ^ (word ^ word >> 24) * M & UINT32_MASK
    if size != whole:
        digest = (digest ^ int.from_bytes(data[whole:], "little")) * M & UINT32_MASK
    digest = (digest ^ digest >> 13) * M & UINT32_MASK
    return digest ^ digest >> 15


def partition_of(key: bytes, partitions: int) -> int:
    """The index of the partition for a key in a topic with this number of partitions."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
