"""DeleteRecords: when a leader tells a low watermark, every follower in sync has said that its log begins there."""

from __future__ import annotations

from collections.abc import Callable

from moldau.replication.leadership import UNKNOWN_OFFSET
from moldau.replication.partition import Partition
from tests.simulation.invariants.observation import Violation
from tests.support.cluster import Cluster, ClusterNode
from tests.support.history import Key


class DeletedEverywhere:
    """`asking` before a request is sent; what it gives takes the answer. Followers that began anew meanwhile are left
    out, and whatever a leader says that does not lead any more."""

    def __init__(self, cluster: Cluster, failed: Callable[[Exception], None]) -> None:
        self._cluster = cluster
        self._failed = failed

    def asking(self, key: Key, leader_id: int) -> Callable[[int], None]:
        node = self._cluster.nodes[leader_id]
        before, life = self._followers(node, key), node.host.life

        def answered(low_watermark: int) -> None:
            if node.host.life is not life:
                return
            after = self._followers(node, key)
            for follower_id, (epoch, start_offset) in after.items():
                known_epoch, known_start = before.get(follower_id, (-1, UNKNOWN_OFFSET))
                is_same = known_epoch == epoch and UNKNOWN_OFFSET not in (known_start, start_offset)
                if is_same and start_offset < low_watermark:
                    text = f"{key} is said to begin at {low_watermark}, and begins at {start_offset} on {follower_id}"
                    self._failed(Violation(text))

        return answered

    @staticmethod
    def _followers(node: ClusterNode, key: Key) -> dict[int, tuple[int, int]]:
        """By id those in sync that live: broker epoch and log start, as the leader knows them."""
        broker = node.broker
        if not node.is_up or broker is None or not hasattr(broker, "replicas"):
            return {}
        partition: Partition | None = broker.replicas.get(*key)
        if partition is None or partition.leadership is None:
            return {}
        return {
            follower_id: (progress.broker_epoch, progress.log_start_offset)
            for follower_id, progress in partition.leadership.followers.items()
            if follower_id in partition.isr and broker.cluster.is_alive(follower_id)
        }
