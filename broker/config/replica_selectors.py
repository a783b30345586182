"""The values of `replica.selector.class`: the names of Apache Kafka's two selectors, which are part of this broker."""

from __future__ import annotations

from typing import Final

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""A consumer reads from an in-sync replica in its own rack."""
LEADER: Final = "org.apache.kafka.common.replica.LeaderSelector"
"""A consumer reads from the leader."""
