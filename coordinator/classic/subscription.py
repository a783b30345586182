"""The topics that consumers name when they join: the one thing the broker reads of the clients' own bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from protocol.compiler import decoder_of
from protocol.primitives import MalformedMessage
from protocol.records.consumer_protocol import ConsumerProtocolSubscription
from protocol.schema import spec_of

CONSUMER_PROTOCOL_TYPE = "consumer"


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """All topics named, None where one subscription is not in the consumers' language."""
    topics: set[str] = set()
    for subscription in subscriptions:
        try:
            topics.update(topics_of(subscription))
        except MalformedMessage:
            return None
    return frozenset(topics)


def topics_of(subscription: bytes) -> list[str]:
    """An int16 version, then the subscription; a version newer than ours begins like the last one we know."""
    if len(subscription) < 2:
        raise MalformedMessage("a subscription without a version")
    (version,) = struct.unpack_from(">h", subscription)
    versions = spec_of(ConsumerProtocolSubscription).versions
    if version < versions.first:
        raise MalformedMessage(f"subscription version {version}")
    decoded, _ = decoder_of(ConsumerProtocolSubscription, min(version, versions.last))(subscription, 2)
    return decoded.topics
