"""I1: in one leader epoch one broker at most leads a partition, and all its batches of that epoch are that broker's."""

from __future__ import annotations

from tests.simulation.invariants.observation import Observation, PartitionKey, Violation


class OneLeader:
    def __init__(self) -> None:
        self._leaders: dict[tuple[PartitionKey, int], int] = {}

    def check(self, seen: Observation) -> None:
        for key, replica in seen.all_replicas():
            if replica.partition.leadership is not None:
                epoch = replica.partition.leader_epoch
                leader = self._leaders.setdefault((key, epoch), replica.node_id)
                if leader != replica.node_id:
                    raise Violation(f"{replica} leads in epoch {epoch}, which is node {leader}'s")
                for other in replica.content.batches[-1:]:
                    if other.leader_epoch > epoch:
                        raise Violation(f"{replica} leads in epoch {epoch} and holds {other.identity}")
