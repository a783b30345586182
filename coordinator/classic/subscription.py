"""The subscribed topics in consumers' metadata: the only part of the clients' own bytes that the broker reads."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from moldau.protocol.compiler import decoder_of
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.records.consumer_protocol import ConsumerProtocolSubscription

CONSUMER_PROTOCOL_TYPE = "consumer"


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """All topics of these subscriptions; None where one of them is not a consumer's subscription."""
    topics: set[str] = set()
    for subscription in subscriptions:
        try:
            topics.update(topics_of(subscription))
        except MalformedMessage:
            return None
    return frozenset(topics)


def topics_of(subscription: bytes) -> list[str]:
    """Decode the topics of a subscription, which follows an int16 version. Raises `MalformedMessage`.

    Of every version only the fields of version 0 are read, with which all versions begin, as Apache Kafka does: some
    clients write the header of version 1 before a body of version 0.
    """
    if len(subscription) < 2:
        raise MalformedMessage("a subscription without a version")
    (version,) = struct.unpack_from(">h", subscription)
    if version < 0:
        raise MalformedMessage(f"subscription version {version}")
    decoded, _ = decoder_of(ConsumerProtocolSubscription, 0)(subscription, 2)
    return decoded.topics
