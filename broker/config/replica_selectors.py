"""Names of `replica.selector.class`: those of Apache Kafka's two selectors, which are built in here."""

from __future__ import annotations

from typing import Final

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""A consumer reads from an in-sync replica in its own rack."""
LEADER: Final = "org.apache.kafka.common.replica.LeaderSelector"
"""A consumer reads from the leader."""
