"""One step of a member's reconciliation towards its target assignment. `member.py` describes the states."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from moldau.coordinator.consumer.assignors import Assignment
from moldau.coordinator.consumer.member import NO_PARTITIONS, ConsumerMember, MemberState, PartitionEpochs

OwnedPartitions: TypeAlias = Mapping[bytes, Iterable[int]]
"""The indexes of the partitions that a member reports to own, by topic id."""


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The input of one reconciliation step of a member."""

    target_epoch: int
    target: Assignment
    """The member's target assignment of `target_epoch`."""
    subscribed: frozenset[bytes]
    """The ids of the existing topics to which the member subscribes now. The target may have been computed for an
    earlier subscription."""
    is_subscription_changed: bool
    owned: OwnedPartitions | None
    """The partitions that the member's request reports; None if the request reports none because they have not
    changed."""
    is_owned_by_any: Callable[[bytes, int], bool]
    """Whether any member of the group owns the partition with this topic id and index."""

    def step(self, member: ConsumerMember) -> ConsumerMember | None:
        """The member after one step; the same object if nothing changes.

        Returns None if the member must rejoin without partitions: it is in a state that this release does not know, and
        its request reports partitions, or reports nothing.
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
        """Whether the member's request reports any of these partitions. True if the request has no report."""
        if self.owned is None:
            return True
        return any(
            partition in partitions.get(topic_id, ())
            for topic_id, reported in self.owned.items()
            for partition in reported
        )

    def _within_subscription(self, member: ConsumerMember) -> ConsumerMember:
        """The member without the partitions of topics to which it no longer subscribes, before a new target is
        computed. They are revoked. A member without any topic and without partitions to revoke is returned as changed
        even if it has no partition."""
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
        """The member after the next step towards the target. It keeps the partitions that the target has too, and
        revokes the others. Once none is left to revoke, it gets the target's partitions that no other member owns."""
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
