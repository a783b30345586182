"""The partition of an internal topic that stores a key: a group id or a transactional id."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final

INT32_MIN = -0x80000000
REMEMBERED_MAX: Final = 4_096
"""The most keys whose hash is remembered: one transaction asks for that of its transactional id eight times."""
REMEMBERED_LENGTH_MAX: Final = 256
"""The longest key (characters) that is remembered: a client may send any text of 32 KiB."""


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: 31 * h + unit over the UTF-16 units, as a signed 32-bit number."""
    return _remembered_hash(text) if len(text) <= REMEMBERED_LENGTH_MAX else _hash(text)


def _hash(text: str) -> int:
    encoded = text.encode("utf-16-be", "surrogatepass")
    result = 0
    for unit in struct.unpack(f">{len(encoded) // 2}H", encoded):
        result = (31 * result + unit) & 0xFFFFFFFF
    return result - (1 << 32) if result & 0x80000000 else result


_remembered_hash: Final = lru_cache(REMEMBERED_MAX)(_hash)


def partition_of(key: str, partitions_count: int) -> int:
    """The partition whose leader coordinates the key, computed as in Apache Kafka's clients and brokers."""
    code = java_hash(key)
    return 0 if code == INT32_MIN else abs(code) % partitions_count
