"""The replica selector that directs a consumer to an in-sync follower in the consumer's rack, if there is one
(KIP-392).
"""

from __future__ import annotations

from moldau.broker.metadata.cluster_view import ClusterView
from moldau.replication.fetch_plan import NO_PREFERRED_REPLICA
from moldau.replication.partition import Partition


class RackAwareReplicaSelector:
    """The `ReplicaSelector` of a broker with replica.selector.class=RackAwareReplicaSelector."""

    def __init__(self, rack: str | None, cluster: ClusterView) -> None:
        """`rack`: broker.rack of this broker."""
        self._rack = rack
        self._cluster = cluster

    def select(self, partition: Partition, fetch_offset: int, rack: str) -> int:
        """The id of the follower that a consumer in `rack` should read from; `NO_PREFERRED_REPLICA` if it should read
        from this leader.

        A follower must be in sync and have `fetch_offset`. Of several followers the one with the highest end offset is
        chosen, then the one that was caught up last, then the one with the largest id.
        """
        leadership = partition.leadership
        if leadership is None or not leadership.followers or self._rack == rack:
            return NO_PREFERRED_REPLICA
        brokers = self._cluster.image.cluster.brokers
        best = None
        for replica_id, follower in leadership.followers.items():
            node = brokers.get(replica_id)
            if (
                node is not None
                and not node.fenced
                and node.rack == rack
                and replica_id in partition.isr
                and follower.log_start_offset <= fetch_offset <= follower.end_offset
            ):
                rank = (follower.end_offset, follower.last_caught_up_ms, replica_id)
                best = rank if best is None else max(best, rank)
        return best[2] if best is not None else NO_PREFERRED_REPLICA
