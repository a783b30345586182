"""The topics that brokers write themselves."""

from __future__ import annotations

from typing import Final, NamedTuple

GROUP_METADATA_TOPIC: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
SHARE_GROUP_STATE_TOPIC: Final = "__share_group_state"
REMOTE_LOG_METADATA_TOPIC: Final = "__remote_log_metadata"
"""Not internal: as in Apache Kafka, clients see it as a topic like any other."""
INTERNAL_TOPICS: Final = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC})
NEVER_TIERED: Final = INTERNAL_TOPICS | {REMOTE_LOG_METADATA_TOPIC, "__cluster_metadata"}
"""remote.storage.enable has no effect on these topics."""


class InternalTopic(NamedTuple):
    """How an internal topic is created, as Apache Kafka's brokers ask for it when they first need it."""

    name: str
    partitions: int
    replication_factor: int
    configs: dict[str, str]
