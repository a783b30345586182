"""One step of a member towards its target assignment. `member.py` describes the states."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from moldau.coordinator.consumer.assignors import Assignment
from moldau.coordinator.consumer.member import NO_PARTITIONS, ConsumerMember, MemberState, PartitionEpochs

OwnedPartitions: TypeAlias = Mapping[bytes, Iterable[int]]
"""The partitions that a member reports, by topic id."""


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The input of one step."""

    target_epoch: int
    target: Assignment
    """The member's target assignment of that epoch."""
    subscribed: frozenset[bytes]
    """The ids of the existing topics to which the member subscribes now. The target may be from an earlier
    subscription."""
    is_subscription_changed: bool
    owned: OwnedPartitions | None
    """The partitions that the member's request reports; None if the request reports none, so that they have not
    changed."""
    is_owned_by_any: Callable[[bytes, int], bool]
    """Whether any member of the group owns a partition."""

    def step(self, member: ConsumerMember) -> ConsumerMember | None:
        """The member after the step; the same object if nothing changes.

        Returns None if the member is in a state that this release does not know: then it must rejoin without
        partitions.
        """
        match member.state:
            case MemberState.STABLE:
                if member.epoch != self.target_epoch:
                    return self._towards_target(member, member.epoch)
                return self._within_subscription(member) if self.is_subscription_changed else member
            case MemberState.UNREVOKED_PARTITIONS:
                if self._still_owns(member.revoking):
                    return self._within_subscription(member) if self.is_subscription_changed else member
                return self._towards_target(member, member.epoch)
            case MemberState.UNRELEASED_PARTITIONS:
                return self._towards_target(member, member.epoch)
            case _:
                if self.owned is None or self.owned:
                    return None
                return self._towards_target(member, self.target_epoch)

    def _still_owns(self, partitions: PartitionEpochs) -> bool:
        """Whether the member still reports any of these partitions. A request without a report counts as if it reported
        them."""
        if self.owned is None:
            return True
        return any(
            partition in partitions.get(topic_id, ())
            for topic_id, reported in self.owned.items()
            for partition in reported
        )

    def _within_subscription(self, member: ConsumerMember) -> ConsumerMember:
        """Take away partitions of topics to which the member no longer subscribes, before a new target is computed. A
        member without any topic and without partitions to revoke counts as changed even if it has no partition.
        """
        dropped = {topic: epochs for topic, epochs in member.assigned.items() if topic not in self.subscribed}
        if not dropped and (self.subscribed or member.revoking):
            return member
        assigned = {topic: epochs for topic, epochs in member.assigned.items() if topic in self.subscribed}
        revoking = {**member.revoking}
        for topic, epochs in dropped.items():
            revoking[topic] = {**revoking.get(topic, {}), **epochs}
        if revoking and self._still_owns(revoking):
            return replace(
                member,
                state=MemberState.UNREVOKED_PARTITIONS,
                previous_epoch=member.epoch,
                assigned=assigned,
                revoking=revoking,
            )
        return replace(member, previous_epoch=member.epoch, assigned=assigned)

    def _towards_target(self, member: ConsumerMember, epoch: int) -> ConsumerMember:
        """Make the next step towards the target: keep the partitions that the target has too, and revoke the others.
        Once none is left to revoke, assign the target's partitions that no other member owns."""
        assigned: dict[bytes, dict[int, int]] = {}
        revoking: dict[bytes, dict[int, int]] = {}
        given: list[tuple[bytes, int]] = []
        has_unreleased = False
        for topic in sorted({*self.target, *member.assigned}):
            wanted = self.target.get(topic, frozenset()) if topic in self.subscribed else frozenset()
            has = member.assigned.get(topic, {})
            kept = {partition: since for partition, since in has.items() if partition in wanted}
            gone = {partition: since for partition, since in has.items() if partition not in wanted}
            if kept:
                assigned[topic] = kept
            if gone:
                revoking[topic] = gone
            for partition in sorted(missing) if (missing := wanted - kept.keys()) else ():
                if self.is_owned_by_any(topic, partition) and partition not in member.revoking.get(topic, ()):
                    has_unreleased = True
                else:
                    given.append((topic, partition))
        if revoking and self._still_owns(revoking):
            return replace(
                member,
                state=MemberState.UNREVOKED_PARTITIONS,
                epoch=epoch,
                previous_epoch=member.epoch,
                assigned=assigned,
                revoking=revoking,
            )
        for topic, partition in given:
            assigned.setdefault(topic, {})[partition] = self.target_epoch
        return replace(
            member,
            state=MemberState.UNRELEASED_PARTITIONS if has_unreleased else MemberState.STABLE,
            epoch=self.target_epoch,
            previous_epoch=member.epoch,
            assigned=assigned,
            revoking=NO_PARTITIONS,
        )
