"""The partition of `__remote_log_metadata` with the records of a user partition, chosen exactly as in Apache Kafka."""

from __future__ import annotations

from struct import Struct
from typing import Final

from moldau.storage.tiered.metadata.remote_segment import RemotePartition

_LONGS: Final = Struct(">QQ")
_MASK: Final = 0xFFFFFFFF
MURMUR2_SEED: Final = 0x9747B28C
MURMUR2_FACTOR: Final = 0x5BD1E995


def metadata_partition(partition: RemotePartition, partition_count: int) -> int:
    """The partition of the metadata topic, which has `partition_count` partitions."""
    most, least = _LONGS.unpack(partition.topic_id)
    topic_hash = 31 * (31 + _long_hash(least)) + _long_hash(most)
    number = (31 * topic_hash + partition.partition) & _MASK
    return (_murmur2_of_int(number) & 0x7FFFFFFF) % partition_count


def _long_hash(value: int) -> int:
    """Java's hash of a long, as an unsigned int."""
    return (value ^ (value >> 32)) & _MASK


def _murmur2_of_int(number: int) -> int:
    """Kafka's murmur2 of the four big-endian bytes of a number."""
    mixed = int.from_bytes(number.to_bytes(4, "big"), "little") * MURMUR2_FACTOR & _MASK
    mixed = (mixed ^ (mixed >> 24)) * MURMUR2_FACTOR & _MASK
    hashed = ((MURMUR2_SEED ^ 4) * MURMUR2_FACTOR & _MASK) ^ mixed
    hashed = (hashed ^ (hashed >> 13)) * MURMUR2_FACTOR & _MASK
    return hashed ^ (hashed >> 15)
