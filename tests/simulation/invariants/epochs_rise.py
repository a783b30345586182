"""I1: epochs never go back, a partition's on one life of a broker, the quorum's on one disk; a leader's log has its."""

from __future__ import annotations

from moldau.broker.metrics.observed import NodeStage
from tests.simulation.invariants.observation import Observation, PartitionKey, Violation


class EpochsRise:
    def __init__(self) -> None:
        self._of_partitions: dict[tuple[int, int, PartitionKey], tuple[int, int]] = {}
        self._of_quorum: dict[tuple[int, int], int] = {}

    def check(self, seen: Observation) -> None:
        # A broker that stops closes its logs last of all, when it answers nobody any more. An epoch in which nobody
        # wrote is then dropped from the log: the next start would, here and in Apache Kafka.
        stopping = {node.id for node in seen.nodes if node.broker.readiness.stage is NodeStage.STOPPING}
        for key, replica in seen.all_replicas():
            place = (replica.node_id, replica.life, key)
            epochs = replica.partition.leader_epoch, replica.partition.partition_epoch
            before = self._of_partitions.get(place, epochs)
            if epochs[0] < before[0] or epochs[1] < before[1]:
                raise Violation(f"{replica}: (leader epoch, partition epoch) went from {before} to {epochs}")
            leadership = replica.partition.leadership
            if leadership is not None:
                log, began = replica.partition.log, leadership.epoch_start_offset
                latest, may_be_closed = log.epochs.latest_epoch, replica.node_id in stopping and began == log.end_offset
                if latest != epochs[0] and log.failure is None and not may_be_closed:
                    raise Violation(f"{replica} leads in epoch {epochs[0]}, its log knows epoch {latest}")
            self._of_partitions[place] = epochs
        for node in seen.nodes:
            epoch = node.broker.quorum.leader_epoch
            if epoch < self._of_quorum.get((node.id, node.life), epoch):
                raise Violation(f"node {node.id}: the quorum's epoch went back to {epoch}")
            self._of_quorum[node.id, node.life] = epoch
