"""What a request of a member changes: its subscription, the group epoch, the target assignment, its own assignment.

A heartbeat of the consumer protocol and a join of the classic protocol go through the same steps. The changes are
collected, and written only if no step refuses the request: all of them are one batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from moldau.coordinator.consumer.assignors import ASSIGNORS, NOTHING, AssignedMember, Assigning, Assignment
from moldau.coordinator.consumer.group import ConsumerGroup, ConsumerTimer, Subscriptions
from moldau.coordinator.consumer.member import ConsumerMember, MemberState, pattern_of
from moldau.coordinator.consumer.reconciliation import OwnedPartitions, Reconciliation
from moldau.coordinator.consumer.records import (
    current_change,
    epoch_change,
    member_change,
    member_tombstones,
    partition_metadata_tombstone,
    regex_tombstone,
    target_change,
    target_epoch_change,
)
from moldau.coordinator.consumer.regular_expressions import regex_fault
from moldau.coordinator.group.group import GroupStep
from moldau.coordinator.group.image import CoordinatorImage
from moldau.coordinator.group.kind_settings import ConsumerGroupSettings
from moldau.coordinator.group.metadata_hash import hash_of_topics
from moldau.coordinator.group.records import Change
from moldau.protocol.errors import ErrorCode


class Refused(NamedTuple):
    """The error of a request, which then changes nothing."""

    error: ErrorCode
    message: str


@dataclass(slots=True)
class MemberUpdate:
    """The update of one member. The methods are called in the order in which they stand."""

    step: GroupStep
    group: ConsumerGroup
    settings: ConsumerGroupSettings
    member: ConsumerMember
    """The member before the request; a new one has the epoch 0."""
    updated: ConsumerMember
    """The member with what the request says."""
    changes: list[Change] = field(default_factory=list)
    """What is written; it may begin with the conversion of the group or the replacement of a static member."""
    epoch: int = 0
    """The group epoch after the request."""
    is_subscription_changed: bool = False
    subscriptions: Subscriptions | None = None
    """Those of the group after the request, if the topics were looked at."""
    target_epoch: int = 0
    target: Assignment = field(default_factory=dict)
    ids: dict[str, bytes | None] = field(default_factory=dict)
    """The ids of topics by name that were looked up in this update; None: there is no such topic."""

    def change_subscription(self, *, is_classic: bool = False) -> Refused | None:
        """Store what has changed about the member, and raise the group epoch if the topics of the group changed.

        A regular expression that is not resolved yet leaves the epoch as it is: its resolution will raise it. A member
        of the classic protocol never brings one, and its change raises the epoch in any case.
        """
        group, member, updated = self.group, self.member, self.updated
        self.epoch = group.epoch
        if updated != member:
            self.changes.append(member_change(group.group_id, updated))
        names_changed = updated.subscribed_topics != member.subscribed_topics
        regex_changed = updated.subscribed_regex != member.subscribed_regex
        old, new = pattern_of(member), pattern_of(updated)
        is_resolved = False
        if regex_changed:
            if old is not None and group.subscriptions.regexes[old] == 1:
                self.changes.append(regex_tombstone(group.group_id, old))
            if new is None:
                is_resolved = old is not None
            elif new in group.subscriptions.regexes:
                is_resolved = new in group.resolved
            else:
                fault = regex_fault(new)
                if fault is not None:
                    return Refused(ErrorCode.INVALID_REGULAR_EXPRESSION, fault)
        self.is_subscription_changed = names_changed or regex_changed
        raises_epoch = self.is_subscription_changed if is_classic else names_changed or is_resolved
        if raises_epoch or not group.has_met(self.step.image):
            self.subscriptions = group.subscriptions_with(member, updated)
            self._look_at_topics(self.subscriptions.topics, raises_epoch)
        return None

    def _look_at_topics(self, topics: Iterable[str], raises_epoch: bool) -> None:
        metadata_hash = hash_of_topics(topics, self.step.image)
        if raises_epoch or metadata_hash != self.group.metadata_hash:
            self.epoch += 1
            self.changes.append(epoch_change(self.group.group_id, self.epoch, metadata_hash))
            self.step.rebalances.begun[self.group.type_name] += 1
        self.group.looked_at = self.step.image.version, self.epoch
        if self.group.has_partition_metadata:
            self.changes.append(partition_metadata_tombstone(self.group.group_id))

    def update_target(self, *, may_compute: bool = True) -> None:
        """Compute the target assignment of a new group epoch, at most once in `group.consumer.assignment.interval.ms`
        (KIP-1263): until then the members follow the one before. They do so, too, if it may not be computed.
        """
        group = self.group
        self.target_epoch, self.target = group.assignment_epoch, group.target_of(self.updated)
        interval_ms = self.settings.assignment_interval_ms
        is_due = not group.assigned_ms or not interval_ms or self.step.wall_ms >= group.assigned_ms + interval_ms
        if not may_compute or group.assignment_epoch >= self.epoch or not is_due:
            return
        name = group.preferred_assignor(self.settings.assignors[0], self.member, self.updated)
        members = self._assigned_members()
        is_homogeneous = (self.subscriptions or group.subscriptions).is_homogeneous(len(members))
        targets = ASSIGNORS[name](
            Assigning(members, partition_counts(members.values(), self.step.image), is_homogeneous)
        )
        for member_id in members:
            target = targets.get(member_id, NOTHING)
            if target != group.targets.get(member_id):
                self.changes.append(target_change(group.group_id, member_id, target))
        self.changes.append(target_epoch_change(group.group_id, self.epoch, self.step.wall_ms))
        self.target_epoch, self.target = self.epoch, targets.get(self.updated.member_id, NOTHING)

    def _assigned_members(self) -> Mapping[str, AssignedMember]:
        """All members after the request. A static member that replaces another has the target of that one."""
        group, updated, image, ids = self.group, self.updated, self.step.image, self.ids
        replaced = None if updated.instance_id is None else group.static_members.get(updated.instance_id)
        members = {
            member_id: AssignedMember(
                topic_ids(group, member, image, ids), group.targets.get(member_id, NOTHING), member.instance_id
            )
            for member_id, member in group.members.items()
            if member_id not in (replaced, updated.member_id)
        }
        former_id = updated.member_id if replaced is None else replaced
        members[updated.member_id] = AssignedMember(
            topic_ids(group, updated, image, ids), group.targets.get(former_id, NOTHING), updated.instance_id
        )
        return members

    def reconcile(self, owned: OwnedPartitions | None) -> Refused | None:
        """Move the member towards its target; `owned` are the partitions that it reports. The rebalance timer runs
        while the member has partitions to revoke.
        """
        member, group = self.updated, self.group
        if not self.is_subscription_changed and member.is_reconciled_to(self.target_epoch):
            return None
        moved = Reconciliation(
            self.target_epoch,
            self.target,
            topic_ids(group, member, self.step.image, self.ids),
            self.is_subscription_changed,
            owned,
            group.is_owned,
        ).step(member)
        if moved is None:
            return Refused(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "the state of the member is not known here: it must rejoin without partitions",
            )
        if moved == member:
            return None
        self.updated = moved
        self.changes.append(current_change(group.group_id, moved))
        if moved.classic is None:
            if moved.state is MemberState.UNREVOKED_PARTITIONS:
                self.step.schedule(ConsumerTimer.REBALANCE, group, moved.rebalance_timeout_ms, moved.member_id)
            else:
                self.step.cancel(ConsumerTimer.REBALANCE, group, moved.member_id)
        return None


def replaced_static_member(
    group: ConsumerGroup, former: ConsumerMember, member_id: str
) -> tuple[ConsumerMember, list[Change]]:
    """A static member under its new id, with the epoch of one that joins, and the changes that put it in the place of
    the former member: it takes over the partitions and the target."""
    member = replace(former, member_id=member_id, epoch=0, previous_epoch=0)
    changes: list[Change] = [
        *member_tombstones(group.group_id, former.member_id),
        member_change(group.group_id, member),
        target_change(group.group_id, member_id, group.targets.get(former.member_id, NOTHING)),
        current_change(group.group_id, member),
    ]
    return member, changes


def topic_ids(
    group: ConsumerGroup, member: ConsumerMember, image: CoordinatorImage, known: dict[str, bytes | None]
) -> frozenset[bytes]:
    """The ids of the existing topics to which a member subscribes by name or by a regular expression that is resolved.

    `known` remembers ids by name (None: there is no such topic) for the next call.
    """
    names = member.subscribed_topics
    pattern = pattern_of(member)
    if pattern is not None and pattern in group.resolved:
        names = names | group.resolved[pattern].topics
    for name in names:
        if name not in known:
            topic = image.topic_of_name(name)
            known[name] = None if topic is None else topic.id
    return frozenset(filter(None, map(known.__getitem__, names)))


def partition_counts(members: Iterable[AssignedMember], image: CoordinatorImage) -> Mapping[bytes, int]:
    """The number of partitions of each topic that a member subscribes to."""
    counts: dict[bytes, int] = {}
    for topic_id in {topic_id for member in members for topic_id in member.topics}:
        topic = image.topic_of_id(topic_id)
        assert topic is not None, "a topic that the image has by name it has by id"
        counts[topic_id] = topic.partitions_count
    return counts
