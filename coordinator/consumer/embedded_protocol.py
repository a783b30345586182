"""The consumer's own messages within the classic protocol: its subscription in JoinGroup, its assignment in SyncGroup.

Both messages follow an int16 version. A version later than `LAST_VERSION` is read as `LAST_VERSION`, as Apache Kafka
does.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Final

from moldau.coordinator.group.image import CoordinatorImage
from moldau.protocol.compiler import decoder_of, encode
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.records.offsets import ConsumerProtocolAssignment, ConsumerProtocolSubscription, TopicPartition

LAST_VERSION: Final = 3


def read_version(data: bytes) -> int:
    """Read the int16 version with which a message begins. A later version than `LAST_VERSION` is returned as
    `LAST_VERSION`. Raises `MalformedMessage`."""
    if len(data) < 2:
        raise MalformedMessage("a message of the consumer protocol without a version")
    (version,) = struct.unpack_from(">h", data)
    if version < 0:
        raise MalformedMessage(f"version {version} of the consumer protocol")
    return min(int(version), LAST_VERSION)


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Decode a member's subscription, with its version. Raises `MalformedMessage`."""
    subscription, _ = decoder_of(ConsumerProtocolSubscription, read_version(data))(data, 2)
    return subscription


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Decode a member's assignment, with its version. Raises `MalformedMessage`."""
    assignment, _ = decoder_of(ConsumerProtocolAssignment, read_version(data))(data, 2)
    return assignment


def partitions_by_id(topics: Iterable[TopicPartition], image: CoordinatorImage) -> dict[bytes, frozenset[int]]:
    """The partition indexes of a list of topics, by topic id. A topic that does not exist is left out."""
    found = ((image.topic_of_name(topic.topic), topic.partitions) for topic in topics)
    return {topic.id: frozenset(indexes) for topic, indexes in found if topic is not None}


def written_assignment(partitions: Mapping[bytes, Iterable[int]], version: int, image: CoordinatorImage) -> bytes:
    """Encode an assignment. The encoded form names topics, and a topic that does not exist any more is left out.

    `partitions` has the partition indexes by topic id.
    """
    topics = []
    for topic_id, indexes in partitions.items():
        topic = image.topic_of_id(topic_id)
        if topic is not None:
            topics.append(TopicPartition(topic=topic.name, partitions=sorted(indexes)))
    return struct.pack(">h", version) + encode(ConsumerProtocolAssignment(assigned_partitions=topics), version)
