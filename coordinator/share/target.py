"""The target assignment of a share group: the inputs of its computation, and the records of its result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from moldau.coordinator.group.group import GroupStep
from moldau.coordinator.group.image import CoordinatorImage
from moldau.coordinator.group.records import Change
from moldau.coordinator.group.target import TargetComputed, usable_targets
from moldau.coordinator.share.assignor import Assigned, assign_simple
from moldau.coordinator.share.group import ShareGroup, ShareTimer
from moldau.coordinator.share.records import Member, Topics, target_change, target_epoch_change


class ShareTargetInputs(NamedTuple):
    """The inputs of the target assignment of a share group, copied so that a thread can compute it."""

    members: Mapping[str, Member]
    """The members by member id; at least one."""
    initialized: Topics
    """The share partitions that may be assigned, by topic id."""
    before: Mapping[str, Assigned]
    """The last target assignment of each member, by member id."""
    image: CoordinatorImage

    @property
    def size(self) -> int:
        """The sum of the number of share partitions and the number of subscriptions of members to topics."""
        partitions_count = sum(len(topic.partitions) for topic in self.initialized.values())
        return partitions_count + sum(len(member.topics) for member in self.members.values())

    def compute(self) -> dict[str, Assigned]:
        """Compute the target assignment of each member, by member id."""
        subscriptions = {member_id: topic_ids(self.image, member.topics) for member_id, member in self.members.items()}
        assignable = {topic_id: topic.partitions for topic_id, topic in self.initialized.items()}
        return assign_simple(subscriptions, assignable, self.before)


def on_target_computed(step: GroupStep, group: ShareGroup, event: TargetComputed) -> None:
    """Store a target assignment that a thread has computed. Members that have left and topics that were deleted since
    the computation began are left out."""
    step.cancel(ShareTimer.TARGET, group)
    targets = usable_targets(event, group)
    if targets is not None:
        topics = group.state_topics.initialized
        kept = {key: frozenset(each for each in target if each[0] in topics) for key, target in targets.items()}
        step.write(*target_changes(group, kept, event.epoch, step.wall_ms))


def target_changes(group: ShareGroup, targets: Mapping[str, Assigned], epoch: int, wall_ms: int) -> list[Change]:
    """Return one record for each target assignment that is new or differs from the group's stored target. The last
    record stores the group epoch for which the targets were computed.
    """
    return [
        *(
            target_change(group.group_id, member_id, target)
            for member_id, target in targets.items()
            if target != group.targets.get(member_id)
        ),
        target_epoch_change(group.group_id, epoch, wall_ms),
    ]


def topic_ids(image: CoordinatorImage, names: Iterable[str]) -> frozenset[bytes]:
    """The ids of the topics with these names. Topics that do not exist are left out."""
    found = map(image.topic_of_name, names)
    return frozenset(topic.id for topic in found if topic is not None)
