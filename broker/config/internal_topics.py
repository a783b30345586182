"""The topics that brokers write themselves: their names, and the settings that their writers need."""

from __future__ import annotations

from typing import Final, NamedTuple

from broker.config.config import Config

GROUP_METADATA_TOPIC: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
SHARE_GROUP_STATE_TOPIC: Final = "__share_group_state"
INTERNAL_TOPICS: Final = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC})


class InternalTopic(NamedTuple):
    """How an internal topic is made."""

    partitions: int
    replication_factor: int
    configs: dict[str, str]


def internal_topic(config: Config, name: str) -> InternalTopic:
    """What Apache Kafka's brokers ask for when they first need the topic."""
    assert name == GROUP_METADATA_TOPIC, f"nothing writes {name} yet"
    return InternalTopic(
        config.integer("offsets.topic.num.partitions"),
        config.integer("offsets.topic.replication.factor"),
        {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.integer("offsets.topic.segment.bytes")),
        },
    )
