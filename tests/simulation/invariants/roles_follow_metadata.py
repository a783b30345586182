"""I1, I10: a broker leads what its own metadata says that it leads, in that epoch, and nothing else."""

from __future__ import annotations

from tests.simulation.invariants.observation import Observation, Violation


class RolesFollowMetadata:
    def check(self, seen: Observation) -> None:
        for key, replica in seen.all_replicas():
            topic = replica.broker.image.topics.by_id.get(key[0])
            assigned = topic.partitions.get(key[1]) if topic is not None else None
            if assigned is None:
                continue
            partition = replica.partition
            leads = partition.leadership is not None
            if partition.leader_epoch < 0 and not leads:
                continue  # it is registered first, and takes no role before that
            if leads != (assigned.leader == replica.node_id):
                raise Violation(f"{replica}: leads is {leads}, its metadata says {assigned}")
            if partition.leader_epoch != assigned.leader_epoch:
                raise Violation(f"{replica} is in leader epoch {partition.leader_epoch}, its metadata says {assigned}")
