"""The partition of an internal topic that stores a key: a group id or a transactional id."""

from __future__ import annotations

import struct

INT32_MIN = -0x80000000


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: 31 * h + unit over the UTF-16 units, as a signed 32-bit number."""
    encoded = text.encode("utf-16-be", "surrogatepass")
    result = 0
    for unit in struct.unpack(f">{len(encoded) // 2}H", encoded):
        result = (31 * result + unit) & 0xFFFFFFFF
    return result - (1 << 32) if result & 0x80000000 else result


def partition_of(key: str, partitions_count: int) -> int:
    """The partition whose leader coordinates the key, computed as in Apache Kafka's clients and brokers."""
    code = java_hash(key)
    return 0 if code == INT32_MIN else abs(code) % partitions_count
