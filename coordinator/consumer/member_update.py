"""Computes the changes that a member's request makes: to its subscription, the group epoch, the target assignment, and
the member's own assignment.

A heartbeat of the consumer protocol and a join of the classic protocol go through the same steps. The changes are
collected, and written in one batch, only if no step refuses the request.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from moldau.coordinator.consumer.assignors import NOTHING, Assignment
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
)
from moldau.coordinator.consumer.regular_expressions import regex_fault
from moldau.coordinator.consumer.target import target_changes, target_inputs, topic_ids
from moldau.coordinator.group.group import GroupStep, TimerKey
from moldau.coordinator.group.kind_settings import ConsumerGroupSettings
from moldau.coordinator.group.membership import JOIN_EPOCH, Refusal, note_rebalance_begun
from moldau.coordinator.group.metadata_hash import hash_of_topics
from moldau.coordinator.group.records import Change
from moldau.coordinator.group.target import is_too_early, targets_if_small
from moldau.protocol.errors import ErrorCode


@dataclass(slots=True)
class MemberUpdate:
    """The update of one member by a request. A caller calls `change_subscription`, `update_target` and `reconcile` in
    this order."""

    step: GroupStep
    group: ConsumerGroup
    settings: ConsumerGroupSettings
    member: ConsumerMember
    """The member before the request; a new member has the epoch 0."""
    updated: ConsumerMember
    """The member with the fields of the request, and with the changes of the methods called so far."""
    changes: list[Change] = field(default_factory=list)
    """The records to write. The caller may begin the list with the conversion of the group or the replacement of a
    static member."""
    epoch: int = 0
    """The group epoch after the request."""
    is_subscription_changed: bool = False
    subscriptions: Subscriptions | None = None
    """The subscriptions of the group after the request; None if the topics were not hashed."""
    target_epoch: int = 0
    target: Assignment = field(default_factory=dict)
    ids: dict[str, bytes | None] = field(default_factory=dict)
    """The topic ids that were looked up in this update, by name; None for a topic that does not exist."""

    def change_subscription(self, *, is_classic: bool = False) -> Refusal | None:
        """Store the changed fields of the member, and raise the group epoch if the topics of the group changed. Returns
        a refusal if a new regular expression is not valid.

        A regular expression that is not resolved yet does not raise the epoch, because its resolution will. A member of
        the classic protocol has no regular expression, and any change of its subscription raises the epoch.
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
                    return Refusal(ErrorCode.INVALID_REGULAR_EXPRESSION, fault)
        self.is_subscription_changed = names_changed or regex_changed
        raises_epoch = self.is_subscription_changed if is_classic else names_changed or is_resolved
        if raises_epoch or not group.has_seen(self.step.image):
            self.subscriptions = group.subscriptions_with(member, updated)
            self._look_at_topics(self.subscriptions.topics, raises_epoch)
        return None

    def _look_at_topics(self, topics: Iterable[str], raises_epoch: bool) -> None:
        metadata_hash = hash_of_topics(topics, self.step.image)
        if raises_epoch or metadata_hash != self.group.metadata_hash:
            self.epoch += 1
            self.changes.append(epoch_change(self.group.group_id, self.epoch, metadata_hash))
            note_rebalance_begun(self.step, self.group, self.epoch, self.updated, is_subscription_changed=raises_epoch)
        self.group.note_seen(self.step.image, self.epoch)
        if self.group.has_partition_metadata:
            self.changes.append(partition_metadata_tombstone(self.group.group_id))

    def update_target(self, *, may_compute: bool = True) -> None:
        """Compute the target assignment of a new group epoch, at most once in `group.consumer.assignment.interval.ms`
        (KIP-1263). Until the target is computed, the members follow the last one. The last target also stays if
        `may_compute` is False, and while a thread computes the target of a large group."""
        group, step = self.group, self.step
        self.target_epoch, self.target = group.assignment_epoch, group.target_of(self.updated)
        waits = is_too_early(group.assignment_ms, self.settings.assignment_interval_ms, step.wall_ms)
        if not may_compute or group.assignment_epoch >= self.epoch or waits:
            return
        assignor = group.preferred_assignor(self.settings.assignors[0], self.member, self.updated)
        subscriptions = self.subscriptions or group.subscriptions
        inputs = target_inputs(group, self.updated, subscriptions, assignor, step.image)
        targets = targets_if_small(step, TimerKey(ConsumerTimer.TARGET, group.group_id), self.epoch, inputs)
        if targets is not None:
            self.changes += target_changes(group, targets, self.epoch, step.wall_ms)
            self.target_epoch, self.target = self.epoch, targets[self.updated.member_id]

    def reconcile(self, owned: OwnedPartitions | None) -> Refusal | None:
        """Move the member towards its target. `owned` has the partitions that the request reports. The rebalance timer
        runs while the member has partitions to revoke. Returns a refusal if the member is in a state that this release
        does not know."""
        member, group = self.updated, self.group
        if not self.is_subscription_changed and member.is_reconciled_to(self.target_epoch):
            return None
        moved = Reconciliation(
            self.target_epoch,
            self.target,
            topic_ids(member, group.resolved, self.step.image, self.ids),
            self.is_subscription_changed,
            owned,
            group.is_owned,
        ).step(member)
        if moved is None:
            return Refusal(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The consumer group member is in a unknown state. "
                "The member must abandon all its partitions and rejoin.",
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
    """The value of a static member under its new id, with the epoch 0 of a joining member, and the records that replace
    the former member by it. The new member takes over the partitions and the target."""
    member = replace(former, member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
    changes: list[Change] = [
        *member_tombstones(group.group_id, former.member_id),
        member_change(group.group_id, member),
        target_change(group.group_id, member_id, group.targets.get(former.member_id, NOTHING)),
        current_change(group.group_id, member),
    ]
    return member, changes
