"""I6: a leader counts by the in-sync set that the controller confirmed, and its candidates are a superset of it, and of
the set that the controller has by now, of which the leader may not have heard.
"""

from __future__ import annotations

from moldau.kraft.image.topics import PartitionRegistration as Assigned
from tests.simulation.invariants.observation import Observation, PartitionKey, Replica, Violation

Set = tuple[int, ...]


class ConfirmedSet:
    def __init__(self) -> None:
        self._sets: dict[tuple[PartitionKey, int], tuple[Set, str]] = {}
        """By partition and partition epoch: the set, and who said so first."""
        self._read: dict[int, object] = {}
        """The image of each node that was looked at last."""

    def check(self, seen: Observation) -> None:
        for node in seen.nodes:
            topics = node.broker.quorum.image.topics
            if self._read.get(node.id) is topics:
                continue
            self._read[node.id] = topics
            for topic, index, assigned in topics.partitions():
                self._says((topic.id, index), assigned.partition_epoch, assigned.isr, f"image of node {node.id}")
        for key, replica in seen.all_replicas():
            partition, leadership = replica.partition, replica.partition.leadership
            if leadership is None:
                continue
            self._says(key, partition.partition_epoch, partition.isr, f"leader {replica}")
            confirmed, maximal = set(partition.isr), set(leadership.in_sync.maximal)
            if not confirmed <= maximal:
                raise Violation(f"{replica} counts by {sorted(maximal)} while {sorted(confirmed)} is confirmed")
            latest = seen.assigned(key)
            if latest is not None and leads_behind(replica, latest) and not set(latest.isr) <= maximal:
                raise Violation(f"{replica} counts by {sorted(maximal)} while the controller has {latest.isr}")

    def _says(self, key: PartitionKey, epoch: int, isr: Set, who: str) -> None:
        known, first = self._sets.setdefault((key, epoch), (tuple(sorted(isr)), who))
        if known != tuple(sorted(isr)):
            raise Violation(f"{who} has the in-sync set {isr} at partition epoch {epoch}; {first} had {known}")


def leads_behind(replica: Replica, assigned: Assigned) -> bool:
    """Whether the replica leads in the controller's epoch, and the controller has a later set."""
    partition, leading = replica.partition, (assigned.leader, assigned.leader_epoch)
    is_leader = replica.is_registered and leading == (replica.node_id, partition.leader_epoch)
    return is_leader and assigned.partition_epoch > partition.partition_epoch
