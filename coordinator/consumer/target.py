"""The target assignment of a consumer group: the inputs of its computation, and the records of its result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from moldau.coordinator.consumer.assignors import ASSIGNORS, NOTHING, AssignedMember, Assignment, AssignorInput
from moldau.coordinator.consumer.group import ConsumerGroup, ConsumerTimer, ResolvedRegex, Subscriptions
from moldau.coordinator.consumer.member import ConsumerMember, pattern_of
from moldau.coordinator.consumer.records import target_change, target_epoch_change
from moldau.coordinator.group.group import GroupStep
from moldau.coordinator.group.image import CoordinatorImage
from moldau.coordinator.group.records import Change
from moldau.coordinator.group.target import TargetComputed, usable_targets


class ConsumerTargetInputs(NamedTuple):
    """The inputs of the target assignment of a consumer group, copied so that a thread can compute it."""

    assignor: str
    members: Mapping[str, ConsumerMember]
    """The members by member id; at least one."""
    before: Mapping[str, Assignment]
    """The last target assignment of each member, by member id."""
    resolved: Mapping[str, ResolvedRegex]
    is_homogeneous: bool
    """Whether all members have the same subscription (`Subscriptions.is_homogeneous`)."""
    image: CoordinatorImage
    size: int
    """The sum of the number of partitions and the number of subscriptions of members to topics."""

    def compute(self) -> dict[str, Assignment]:
        """Compute the target assignment of each member."""
        ids: dict[str, bytes | None] = {}
        members = {
            member_id: AssignedMember(
                topic_ids(member, self.resolved, self.image, ids),
                self.before.get(member_id, NOTHING),
                member.instance_id,
            )
            for member_id, member in self.members.items()
        }
        counts = partition_counts(members.values(), self.image)
        targets = ASSIGNORS[self.assignor](AssignorInput(members, counts, self.is_homogeneous))
        return {member_id: targets.get(member_id, NOTHING) for member_id in members}


def target_inputs(
    group: ConsumerGroup,
    updated: ConsumerMember,
    subscriptions: Subscriptions,
    assignor: str,
    image: CoordinatorImage,
) -> ConsumerTargetInputs:
    """The inputs of the target assignment after a member has become `updated`. A static member that replaces another
    member takes over that member's target.

    `subscriptions` are those of the group with the updated member.
    """
    former_id = updated.member_id
    if updated.instance_id is not None:
        former_id = group.static_members.get(updated.instance_id, former_id)
    members, before = {**group.members}, {**group.targets}
    for member_id in (former_id, updated.member_id):
        members.pop(member_id, None)
    members[updated.member_id] = updated
    before[updated.member_id] = group.targets.get(former_id, NOTHING)
    is_homogeneous = subscriptions.is_homogeneous(len(members))
    size = _size(group, subscriptions, image)
    return ConsumerTargetInputs(assignor, members, before, {**group.resolved}, is_homogeneous, image, size)


def _size(group: ConsumerGroup, subscriptions: Subscriptions, image: CoordinatorImage) -> int:
    by_regex = (
        count * len(group.resolved[regex].topics)
        for regex, count in subscriptions.regexes.items()
        if regex in group.resolved
    )
    topics = filter(None, map(image.topic_of_name, subscriptions.topics))
    return sum(subscriptions.by_name.values()) + sum(by_regex) + sum(topic.partitions_count for topic in topics)


def target_changes(group: ConsumerGroup, targets: Mapping[str, Assignment], epoch: int, wall_ms: int) -> list[Change]:
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


def on_target_computed(step: GroupStep, group: ConsumerGroup, event: TargetComputed) -> None:
    """Store a target assignment that a thread has computed. A member that has left since the computation began gets
    none."""
    step.cancel(ConsumerTimer.TARGET, group)
    targets = usable_targets(event, group)
    if targets is not None:
        step.write(*target_changes(group, targets, event.epoch, step.wall_ms))


def topic_ids(
    member: ConsumerMember,
    resolved: Mapping[str, ResolvedRegex],
    image: CoordinatorImage,
    known: dict[str, bytes | None],
) -> frozenset[bytes]:
    """The ids of the existing topics to which a member subscribes, by name or by a resolved regular expression. The
    call adds topic ids to `known`, a cache by topic name for later calls; None stands for a topic that does not exist.
    """
    names = member.subscribed_topics
    pattern = pattern_of(member)
    if pattern is not None and pattern in resolved:
        names = names | resolved[pattern].topics
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
