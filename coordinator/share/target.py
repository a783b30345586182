"""The target assignment of a share group: what it is computed from, when it may be, and which records it changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, cast

from moldau.coordinator.group.background_target import TargetComputed, compute_later, is_of_use
from moldau.coordinator.group.group import GroupStep, TimerKey
from moldau.coordinator.group.image import CoordinatorImage
from moldau.coordinator.group.kind_settings import ShareGroupSettings
from moldau.coordinator.group.records import Change
from moldau.coordinator.share.assignor import Assigned, assign
from moldau.coordinator.share.group import ShareGroup, ShareTimer
from moldau.coordinator.share.records import Member, Topics, target_change, target_epoch_change


class TargetInputs(NamedTuple):
    """What the target of a group is computed from. Nothing of it changes, so that a thread may read it."""

    members: Mapping[str, Member]
    """At least one member."""
    initialized: Topics
    """The share partitions that may be assigned."""
    before: Mapping[str, Assigned]
    """The last target by member id."""
    image: CoordinatorImage

    @property
    def size(self) -> int:
        """A measure of the work of the assignor: the share partitions, and the subscriptions of members to topics."""
        partitions_count = sum(len(topic.partitions) for topic in self.initialized.values())
        return partitions_count + sum(len(member.topics) for member in self.members.values())

    def compute(self) -> dict[str, Assigned]:
        """The partitions of each member."""
        subscriptions = {member_id: topic_ids(self.image, member.topics) for member_id, member in self.members.items()}
        assignable = {topic_id: topic.partitions for topic_id, topic in self.initialized.items()}
        return assign(subscriptions, assignable, self.before)


def targets_at_once(step: GroupStep, group: ShareGroup, epoch: int, updated: Member) -> dict[str, Assigned] | None:
    """The partitions of each member, one of which is updated; None where the group is large: then a thread computes
    them.
    """
    members = {**group.members, updated.member_id: updated}
    inputs = TargetInputs(members, group.state_topics.initialized, {**group.targets}, step.image)
    if inputs.size > step.config.target_size_at_once:
        compute_later(step, TimerKey(ShareTimer.TARGET, group.group_id), epoch, inputs.compute)
        return None
    return inputs.compute()


def target_computed(step: GroupStep, group: ShareGroup, event: TargetComputed) -> None:
    """Take over a target that a thread has computed, without members that have left and topics that have gone
    meanwhile.
    """
    step.cancel(ShareTimer.TARGET, group)
    if is_of_use(event, group):
        targets = cast("Mapping[str, Assigned]", event.targets)
        topics = group.state_topics.initialized
        kept = {
            member_id: frozenset(each for each in target if each[0] in topics)
            for member_id, target in targets.items()
            if member_id in group.members
        }
        step.write(*target_changes(group, kept, event.epoch, step.wall_ms))


def target_changes(group: ShareGroup, targets: Mapping[str, Assigned], epoch: int, wall_ms: int) -> list[Change]:
    """The records of the targets that differ from the last, and the epoch for which they are computed."""
    return [
        *(
            target_change(group.group_id, member_id, target)
            for member_id, target in targets.items()
            if target != group.targets.get(member_id)
        ),
        target_epoch_change(group.group_id, epoch, wall_ms),
    ]


def is_too_early(group: ShareGroup, settings: ShareGroupSettings, wall_ms: int) -> bool:
    """Whether the next target has to wait. The interval counts from the last target, if its time is known."""
    interval_ms = settings.assignment_interval_ms
    return group.assignment_ms != 0 and interval_ms != 0 and wall_ms < group.assignment_ms + interval_ms


def topic_ids(image: CoordinatorImage, names: Iterable[str]) -> frozenset[bytes]:
    """The ids of the topics that exist."""
    found = map(image.topic_of_name, names)
    return frozenset(topic.id for topic in found if topic is not None)
