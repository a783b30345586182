"""I10: leaders come from the in-sync set, fenced brokers neither lead nor stay in it, epochs only rise."""

from __future__ import annotations

from moldau.kraft.image.metadata_image import MetadataImage
from moldau.kraft.image.topics import NO_LEADER
from moldau.kraft.image.topics import PartitionRegistration as Assigned
from tests.simulation.invariants.observation import Observation, PartitionKey, Violation


class ControllerState:
    def __init__(self) -> None:
        self._before: dict[PartitionKey, Assigned] = {}
        self._end_offset = -1

    def check(self, seen: Observation) -> None:
        image = seen.image
        if image.provenance.end_offset == self._end_offset:
            return
        self._end_offset = image.provenance.end_offset
        for topic, index, assigned in image.topics.partitions():
            name = f"{topic.name}-{index}"
            self._check_moment(image, name, assigned)
            before = self._before.get((topic.id, index))
            if before is not None:
                self._check_step(name, before, assigned)
            self._before[topic.id, index] = assigned

    @staticmethod
    def _check_moment(image: MetadataImage, name: str, assigned: Assigned) -> None:
        isr, elr = set(assigned.isr), set(assigned.eligible_leader_replicas)
        if not isr <= set(assigned.replicas) or not elr <= set(assigned.replicas) or isr & elr:
            raise Violation(f"{name}: replicas, in-sync set and eligible leaders do not fit: {assigned}")
        if assigned.leader != NO_LEADER:
            if assigned.leader not in isr:
                raise Violation(f"{name} is led by {assigned.leader}, which is not in sync: {assigned}")
            if not image.cluster.is_active(assigned.leader):
                raise Violation(f"{name} is led by {assigned.leader}, which is fenced or going: {assigned}")
        fenced = [each for each in assigned.isr if each in image.cluster.brokers and image.cluster.brokers[each].fenced]
        if fenced and len(isr) > 1:
            raise Violation(f"{name} has fenced {fenced} in sync: {assigned}")

    @staticmethod
    def _check_step(name: str, before: Assigned, after: Assigned) -> None:
        if after.leader_epoch < before.leader_epoch or after.partition_epoch < before.partition_epoch:
            raise Violation(f"{name}: an epoch went back: {before}, {after}")
        if after.partition_epoch == before.partition_epoch and after != before:
            raise Violation(f"{name} changed without a new partition epoch: {before}, {after}")
        if after.partition_epoch == before.partition_epoch + 1:
            full = {*before.replicas} - {*before.adding_replicas}
            joined = {*after.replicas} - {*after.adding_replicas, *after.removing_replicas} - full
            if not joined <= {*after.isr}:
                raise Violation(f"{name}: a reassignment ended with {joined} not in sync: {before}, {after}")
            candidates = {*before.isr, *before.eligible_leader_replicas, *last_known(before, after), *joined}
            if before.removing_replicas and not after.removing_replicas:
                candidates |= {*after.isr}  # the last one that the move waited for is in sync from here on
            if after.leader not in (NO_LEADER, before.leader) and after.leader not in candidates:
                raise Violation(f"{name}: {after.leader} leads and was not in sync: {before}, {after}")
            if after.leader_epoch > before.leader_epoch and not set(after.isr) <= candidates:
                raise Violation(f"{name}: an election brought {after.isr} in sync: {before}, {after}")


def last_known(before: Assigned, after: Assigned) -> tuple[int, ...]:
    """Who led last is elected if nobody else is left, be it that it lost its power meanwhile (KIP-966); the last
    eligible one may go in the same step."""
    is_left_over = not before.isr and not after.eligible_leader_replicas and len(before.last_known_elr) == 1
    return before.last_known_elr if is_left_over else ()
