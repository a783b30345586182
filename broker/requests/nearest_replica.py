"""Which replica a consumer should read from: one in its own rack, where some follower in sync is there (KIP-392)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from broker.node.node import Node as Broker
    from protocol.messages.fetch import FetchPartition
    from replication.partition import Partition

NONE: Final = -1
FIRST_VERSION: Final = 11
"""Of Fetch: from here on consumers say in which rack they are."""


def nearest_replica(broker: Broker, partition: Partition, wish: FetchPartition, rack: str) -> int:
    """The follower to send a consumer to, -1 for this leader itself.

    A follower must be in sync and have the offset. Of several the one that has most, then the one that was caught up
    last, then the one with the largest id.
    """
    leadership = partition.leadership
    if leadership is None or not leadership.followers or broker.config.text_or_none("broker.rack") == rack:
        return NONE
    brokers = broker.image.cluster.brokers
    best = None
    for replica_id, follower in leadership.followers.items():
        node = brokers.get(replica_id)
        if (
            node is not None
            and not node.fenced
            and node.rack == rack
            and replica_id in partition.isr
            and follower.log_start_offset <= wish.fetch_offset <= follower.end_offset
        ):
            rank = (follower.end_offset, follower.last_caught_up_ms, replica_id)
            best = rank if best is None else max(best, rank)
    return best[2] if best is not None else NONE
