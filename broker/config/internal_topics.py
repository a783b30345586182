"""The internal topics, which brokers write themselves."""

from __future__ import annotations

from enum import Enum
from typing import Final

from moldau.protocol.late_tuple import NamedTuple

GROUP_METADATA_TOPIC: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
SHARE_GROUP_STATE_TOPIC: Final = "__share_group_state"
REMOTE_LOG_METADATA_TOPIC: Final = "__remote_log_metadata"
"""The topic with the metadata of remote logs.

It is not marked internal: as in Apache Kafka, clients see it as an ordinary topic.
"""
INTERNAL_TOPICS: Final = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC})
METADATA_TOPIC: Final = "__cluster_metadata"
NEVER_TIERED: Final = INTERNAL_TOPICS | {REMOTE_LOG_METADATA_TOPIC, METADATA_TOPIC}
"""The topics for which remote.storage.enable has no effect."""


class RecordKind(Enum):
    """The kind of records in a log, which decides how they are decoded."""

    PLAIN = "plain"
    METADATA = "metadata"
    OFFSETS = "offsets"
    TRANSACTIONS = "transactions"
    SHARE_STATE = "share-state"


CONTENTS_OF_TOPICS: Final = {
    METADATA_TOPIC: RecordKind.METADATA,
    GROUP_METADATA_TOPIC: RecordKind.OFFSETS,
    TRANSACTION_STATE_TOPIC: RecordKind.TRANSACTIONS,
    SHARE_GROUP_STATE_TOPIC: RecordKind.SHARE_STATE,
}
"""The kind of records in internal topics. The records of all other topics are plain."""


class InternalTopic(NamedTuple):
    """An internal topic as a broker creates it at its first use, like Apache Kafka does."""

    name: str
    partitions: int
    replication_factor: int
    configs: dict[str, str]
