"""I1: in one leader epoch one broker at most leads a partition, in one life: what a loss of power took from the log of
that epoch, a later process may not write anew in it."""

from __future__ import annotations

from tests.simulation.invariants.observation import Observation, PartitionKey, Violation


class OneLeader:
    def __init__(self) -> None:
        self._leaders: dict[tuple[PartitionKey, int], tuple[int, int]] = {}

    def check(self, seen: Observation) -> None:
        for key, replica in seen.all_replicas():
            if replica.partition.leadership is not None:
                epoch = replica.partition.leader_epoch
                here = replica.node_id, replica.life
                leader = self._leaders.setdefault((key, epoch), here)
                if leader != here:
                    raise Violation(f"{replica} leads in epoch {epoch} as {here}, and as {leader} before")
                for other in replica.content.batches[-1:]:
                    if other.leader_epoch > epoch:
                        raise Violation(f"{replica} leads in epoch {epoch} and holds {other.identity}")
