"""ConsumerGroupDescribe: the description of a consumer group, as of its committed records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from moldau.coordinator.consumer.assignors import NOTHING
from moldau.coordinator.consumer.events import DescribeConsumerGroup
from moldau.coordinator.consumer.group import ConsumerGroup
from moldau.coordinator.consumer.member import ConsumerMember
from moldau.coordinator.group.description import GroupDescription
from moldau.coordinator.group.group import Group, GroupStep
from moldau.coordinator.group.image import CoordinatorImage
from moldau.coordinator.group.membership import answer_when_committed, group_not_found, wrong_group_kind
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.consumer_group_describe import Assignment, DescribedGroup, Member, TopicPartitions

Partitions: TypeAlias = Mapping[bytes, Iterable[int]]
"""Partition indexes by topic id."""
CLASSIC_MEMBER = 0
CONSUMER_MEMBER = 1
"""The values of `member_type` in the response: a member of the classic protocol, and one of the consumer protocol."""


def describe_group(step: GroupStep, group: Group | None, event: DescribeConsumerGroup) -> None:
    """Describe the consumer group with its present members and epochs. The response is sent once all records that the
    description depends on are committed."""
    described: DescribedGroup | GroupDescription[DescribedGroup]
    if not event.group_id:
        described = not_described(event.group_id, ErrorCode.INVALID_GROUP_ID)
    elif isinstance(group, ConsumerGroup):
        described = describe(group, step.image, step.config.consumer.assignors[0])
    else:
        refusal = group_not_found(event.group_id) if group is None else wrong_group_kind(event.group_id, "consumer")
        described = not_described(event.group_id, *refusal)
    answer_when_committed(step, event.waiter, described, lambda refusal: not_described(event.group_id, *refusal))


def describe(group: ConsumerGroup, image: CoordinatorImage, default_assignor: str) -> GroupDescription[DescribedGroup]:
    described = DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor(default_assignor),
        members=[],
    )
    return GroupDescription(described, _members(list(group.members.values()), {**group.targets}, image))


def not_described(group_id: str, error: ErrorCode, message: str | None = None) -> DescribedGroup:
    """The ConsumerGroupDescribe result, with an error, of a group that cannot be described."""
    return DescribedGroup(
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
    )


def _members(
    members: Sequence[ConsumerMember], targets: Mapping[str, Partitions], image: CoordinatorImage
) -> Iterator[Member | None]:
    """Yield each described member after its topics. None is yielded after each topic, so that the caller can pause
    between topics."""
    for member in members:
        described, owned = _without_assignments(member), _owned(member)
        for assignment, partitions in (
            (described.assignment, owned),
            (described.target_assignment, targets.get(member.member_id, NOTHING)),
        ):
            for topic_id, indexes in partitions.items():
                topic = image.topic_of_id(topic_id)
                if topic is not None:  # Topics that do not exist any more are left out.
                    listed = TopicPartitions(topic_id=topic.id, topic_name=topic.name, partitions=sorted(indexes))
                    assignment.topic_partitions.append(listed)
                yield None
        yield described


def _owned(member: ConsumerMember) -> Partitions:
    owned: dict[bytes, list[int]] = {}
    for partitions in (member.assigned, member.revoking):
        for topic_id, epochs in partitions.items():
            owned.setdefault(topic_id, []).extend(epochs)
    return owned


def _without_assignments(member: ConsumerMember) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topics),
        subscribed_topic_regex=member.subscribed_regex,
        assignment=Assignment(topic_partitions=[]),
        target_assignment=Assignment(topic_partitions=[]),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )
