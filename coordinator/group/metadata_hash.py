"""The hash of the topics that a group subscribes to, as Apache Kafka 4.3.1 stores it in the records of groups.

A group whose hash differs from the hash in its record gets a new epoch and a new assignment. The hash must therefore be
the same to the bit, or every group would rebalance when its coordinator moves between Apache Kafka and this broker. In
the hashed bytes numbers are little-endian, and text is UTF-16 followed by its length in units of 16 bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import pack
from typing import Final

from moldau.coordinator.group.image import CoordinatorImage, CoordinatorTopic
from moldau.protocol.xxh3 import xxh3_64

HASH_VERSION: Final = 0
"""The first byte of the bytes from which the hash of a topic is computed."""
NO_TOPICS_HASH: Final = 0
"""The hash of a group that subscribes to no existing topic."""


def topic_hash(topic: CoordinatorTopic) -> int:
    """The hash (signed int64) of a topic's id and name, its partitions and the racks of their replicas."""
    most, least = topic.id[:8], topic.id[8:]
    parts = [bytes((HASH_VERSION,)), most[::-1], least[::-1], _text(topic.name), pack("<i", topic.partitions_count)]
    for partition in range(topic.partitions_count):
        parts.append(pack("<i", partition))
        for rack in sorted(topic.racks_of(partition)):
            parts += (pack("<i", _units(rack)), _text(rack))
    return _signed(xxh3_64(b"".join(parts)))


def group_hash(topic_hashes: Mapping[str, int]) -> int:
    """The hash (signed int64) of a group. `topic_hashes` has the hash of each subscribed topic that exists, by the
    topic's name."""
    if not topic_hashes:
        return NO_TOPICS_HASH
    return _signed(xxh3_64(b"".join(pack("<q", value) for _, value in sorted(topic_hashes.items()))))


def hash_of_topics(names: Iterable[str], image: CoordinatorImage) -> int:
    """The hash (signed int64) of a group that subscribes to these topics. Topics that do not exist are left out."""
    found = ((name, image.topic_of_name(name)) for name in names)
    return group_hash({name: image.topic_hash(topic) for name, topic in found if topic is not None})


def _units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def _text(text: str) -> bytes:
    return text.encode("utf-16-le") + pack("<i", _units(text))


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
