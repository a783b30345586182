"""ShareGroupDescribe: the epochs of a group and its members with their share partitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from moldau.coordinator.group.description import GroupDescription
from moldau.coordinator.group.group import Group, GroupStep
from moldau.coordinator.group.image import CoordinatorImage
from moldau.coordinator.group.membership import answer_when_committed, group_not_found, wrong_group_kind
from moldau.coordinator.share.assignor import NAME
from moldau.coordinator.share.events import DescribeShareGroup
from moldau.coordinator.share.group import ShareGroup
from moldau.coordinator.share.records import Member, grouped_by_topic
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.share_group_describe import Assignment, DescribedGroup, TopicPartitions
from moldau.protocol.messages.share_group_describe import Member as DescribedMember


def describe_group(step: GroupStep, group: Group | None, event: DescribeShareGroup) -> None:
    """Describe the share group with its present members and epochs. The response is sent once all records that the
    description depends on are committed."""
    described: DescribedGroup | GroupDescription[DescribedGroup]
    if isinstance(group, ShareGroup):
        described = describe(step, group)
    else:
        refusal = group_not_found(event.group_id) if group is None else wrong_group_kind(event.group_id, "share")
        described = not_described(event.group_id, *refusal)
    answer_when_committed(step, event.waiter, described, lambda refusal: not_described(event.group_id, *refusal))


def not_described(group_id: str, error: ErrorCode, message: str | None = None) -> DescribedGroup:
    return DescribedGroup(
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
    )


def describe(step: GroupStep, group: ShareGroup) -> GroupDescription[DescribedGroup]:
    described = DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=NAME,
        members=[],
    )
    return GroupDescription(described, described_members(list(group.members.values()), step.image))


def described_members(members: Sequence[Member], image: CoordinatorImage) -> Iterator[DescribedMember | None]:
    """Yield each described member after its topics. None is yielded after each topic, so that the caller can pause
    between topics."""
    for member in members:
        assigned = []
        for each in grouped_by_topic(member.assigned):
            topic = image.topic_of_id(each.topic_id)
            if topic is not None:
                assigned.append(TopicPartitions(topic_id=topic.id, topic_name=topic.name, partitions=each.partitions))
            yield None
        yield DescribedMember(
            member_id=member.member_id,
            rack_id=member.rack_id,
            member_epoch=member.epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.topics),
            assignment=Assignment(topic_partitions=assigned),
        )
