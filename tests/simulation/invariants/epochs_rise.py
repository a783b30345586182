"""I1: epochs never go back, a partition's on one life of a broker, the quorum's on one disk; a leader's log has its."""

from __future__ import annotations

from tests.simulation.invariants.observation import Observation, PartitionKey, Violation


class EpochsRise:
    def __init__(self) -> None:
        self._of_partitions: dict[tuple[int, int, PartitionKey], tuple[int, int]] = {}
        self._of_quorum: dict[tuple[int, int], int] = {}

    def check(self, seen: Observation) -> None:
        for key, replica in seen.all_replicas():
            place = (replica.node_id, replica.life, key)
            epochs = replica.partition.leader_epoch, replica.partition.partition_epoch
            before = self._of_partitions.get(place, epochs)
            if epochs[0] < before[0] or epochs[1] < before[1]:
                raise Violation(f"{replica}: (leader epoch, partition epoch) went from {before} to {epochs}")
            if replica.partition.leadership is not None:
                latest = replica.partition.log.epochs.latest_epoch
                if latest != epochs[0] and replica.partition.log.failure is None:
                    raise Violation(f"{replica} leads in epoch {epochs[0]}, its log knows epoch {latest}")
            self._of_partitions[place] = epochs
        for node in seen.nodes:
            epoch = node.broker.quorum.leader_epoch
            if epoch < self._of_quorum.get((node.id, node.life), epoch):
                raise Violation(f"node {node.id}: the quorum's epoch went back to {epoch}")
            self._of_quorum[node.id, node.life] = epoch
