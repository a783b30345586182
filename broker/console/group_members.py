"""The members of a group, of any type, with their assignments."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from moldau.broker.console.kafka_client import KafkaClient
from moldau.broker.console.page import error_name
from moldau.broker.console.partitions import Partition
from moldau.broker.runtime.limited_work import WorkProcessEnded
from moldau.protocol.messages import consumer_group_describe, share_group_describe, streams_group_describe
from moldau.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from moldau.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from moldau.protocol.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from moldau.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse
from moldau.security.access import AclOperation, ResourceKind

CONSUMER: Final = "consumer"
CLASSIC_MEMBER: Final = 0
"""The type of a member of a consumer group that uses the classic protocol."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MemberRow:
    id: str
    instance_id: str | None
    client_id: str
    host: str
    rack: str | None
    epoch: int | None
    """The member epoch; None in a classic group."""
    subscription: list[str]
    assigned: dict[str, list[int]]
    """The assigned partitions by topic; in a Streams group the tasks by subtopology."""
    target: dict[str, list[int]] | None
    """The target assignment of the member; None if it is the same as `assigned`."""
    notes: str = ""


@dataclass(slots=True)
class DescribedMembers:
    """The members of a group, and details about the group, as its coordinator describes them."""

    members: list[MemberRow] = field(default_factory=list)
    details: dict[str, str] = field(default_factory=dict)
    assigned: set[Partition] = field(default_factory=set)
    """The partitions that are assigned to a member."""
    error: str = ""

    def add(self, row: MemberRow, assigned: Iterable[Partition]) -> None:
        """Add a member, and the partitions that are assigned to it."""
        self.members.append(row)
        self.assigned.update(assigned)


async def describe_members(client: KafkaClient, group_id: str, kind: str, coordinator: int) -> DescribedMembers:
    """Describe the members of a group of this type, by a request to its coordinator. Raises `Unanswered`."""
    described = await _KINDS.get(kind, _describe_classic)(client, group_id, coordinator)
    described.members.sort(key=lambda each: (each.client_id, each.id))
    return described


async def _describe_classic(client: KafkaClient, group_id: str, coordinator: int) -> DescribedMembers:
    answer = await client.ask(DescribeGroupsRequest(groups=[group_id]), DescribeGroupsResponse, broker_id=coordinator)
    (group,) = answer.groups
    made = DescribedMembers(error=group.error_message or error_name(group.error_code))
    made.details = {"protocol type": group.protocol_type, "assignor": group.protocol_data}
    is_consumer = group.protocol_type == CONSUMER
    encoded = [bytes(each.member_assignment) for each in group.members if is_consumer and each.member_assignment]
    try:
        decoded = iter(await client.ports.decoder.assignments(encoded, client.asker))
    except WorkProcessEnded as ended:
        made.error = f"the assignments were not decoded: {ended}"
        is_consumer = False
    for each in group.members:
        read: dict[str, list[int]] | None = {}
        if is_consumer and each.member_assignment:
            read = next(decoded)
        notes = "its assignment cannot be read" if read is None else ""
        assigned = _visible(client, read or {})
        made.assigned.update(_keys(assigned))
        made.members.append(
            MemberRow(
                each.member_id,
                each.group_instance_id,
                each.client_id,
                each.client_host,
                None,
                None,
                [],
                assigned,
                None,
                notes,
            )
        )
    return made


async def _describe_consumer(client: KafkaClient, group_id: str, coordinator: int) -> DescribedMembers:
    request = ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
    answer = await client.ask(request, ConsumerGroupDescribeResponse, broker_id=coordinator)
    (group,) = answer.groups
    made = _described(group)
    for each in group.members:
        assigned = _visible(client, _by_topic(each.assignment.topic_partitions))
        target = _visible(client, _by_topic(each.target_assignment.topic_partitions))
        regex = [f"/{each.subscribed_topic_regex}/"] if each.subscribed_topic_regex else []
        notes = "classic protocol" if each.member_type == CLASSIC_MEMBER else ""
        subscription = [*each.subscribed_topic_names, *regex]
        row = _row(each, each.instance_id, subscription, assigned, target if target != assigned else None, notes)
        made.add(row, _keys(assigned))
    return made


async def _describe_share(client: KafkaClient, group_id: str, coordinator: int) -> DescribedMembers:
    request = ShareGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
    answer = await client.ask(request, ShareGroupDescribeResponse, broker_id=coordinator)
    (group,) = answer.groups
    made = _described(group)
    for each in group.members:
        assigned = _visible(client, _by_topic(each.assignment.topic_partitions))
        made.add(_row(each, None, list(each.subscribed_topic_names), assigned, None, ""), _keys(assigned))
    return made


def _described(group: consumer_group_describe.DescribedGroup | share_group_describe.DescribedGroup) -> DescribedMembers:
    made = DescribedMembers(error=group.error_message or error_name(group.error_code))
    made.details = {
        "assignor": group.assignor_name,
        "group epoch": str(group.group_epoch),
        "assignment epoch": str(group.assignment_epoch),
    }
    return made


def _row(
    member: consumer_group_describe.Member | share_group_describe.Member | streams_group_describe.Member,
    instance_id: str | None,
    subscription: list[str],
    assigned: dict[str, list[int]],
    target: dict[str, list[int]] | None,
    notes: str,
) -> MemberRow:
    return MemberRow(
        member.member_id,
        instance_id,
        member.client_id,
        member.client_host,
        member.rack_id,
        member.member_epoch,
        subscription,
        assigned,
        target,
        notes,
    )


async def _describe_streams(client: KafkaClient, group_id: str, coordinator: int) -> DescribedMembers:
    request = StreamsGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
    answer = await client.ask(request, StreamsGroupDescribeResponse, broker_id=coordinator)
    (group,) = answer.groups
    made = DescribedMembers(error=group.error_message or error_name(group.error_code))
    subtopologies = (group.topology.subtopologies or []) if group.topology is not None else []
    sources = {each.subtopology_id: [*each.source_topics, *_names(each)] for each in subtopologies}
    made.details = {
        "group epoch": str(group.group_epoch),
        "assignment epoch": str(group.assignment_epoch),
        "topology epoch": str(group.topology.epoch) if group.topology is not None else "",
        "subtopologies": ", ".join(sources),
    }
    for each in group.members:
        assigned = _by_subtopology(each.assignment)
        for subtopology, partitions in _tasks(each.assignment.active_tasks).items():
            for topic in sources.get(subtopology, ()):
                if client.may(AclOperation.DESCRIBE, ResourceKind.TOPIC, topic):
                    made.assigned.update((topic, index) for index in partitions)
        target = _by_subtopology(each.target_assignment)
        notes = f"process {each.process_id}" + (", classic protocol" if each.is_classic else "")
        made.add(_row(each, each.instance_id, [], assigned, target if target != assigned else None, notes), ())
    made.assigned = {
        (topic, index)
        for topic, index in made.assigned
        if client.ports.cluster.image.topics.partition(topic, index) is not None
    }
    return made


_KINDS: Final[Mapping[str, Callable[[KafkaClient, str, int], Awaitable[DescribedMembers]]]] = {
    "classic": _describe_classic,
    "consumer": _describe_consumer,
    "share": _describe_share,
    "streams": _describe_streams,
}


def _names(subtopology: streams_group_describe.Subtopology) -> list[str]:
    return [each.name for each in subtopology.repartition_source_topics]


def _by_topic(
    partitions: Iterable[consumer_group_describe.TopicPartitions | share_group_describe.TopicPartitions],
) -> dict[str, list[int]]:
    return {each.topic_name: sorted(each.partitions) for each in partitions if each.partitions}


def _tasks(tasks: Iterable[streams_group_describe.TaskIds]) -> dict[str, list[int]]:
    return {each.subtopology_id: sorted(each.partitions) for each in tasks if each.partitions}


def _by_subtopology(assignment: streams_group_describe.Assignment) -> dict[str, list[int]]:
    """The partitions of a member's tasks, by subtopology. The name of a subtopology with standby or warm-up tasks is
    followed by that role.
    """
    made = dict(_tasks(assignment.active_tasks))
    for role, tasks in (("standby", assignment.standby_tasks), ("warm-up", assignment.warmup_tasks)):
        made.update({f"{name} ({role})": each for name, each in _tasks(tasks).items()})
    return made


def _visible(client: KafkaClient, assigned: dict[str, list[int]]) -> dict[str, list[int]]:
    """The part of an assignment with topics that the user may describe."""
    return {
        topic: partitions
        for topic, partitions in assigned.items()
        if client.may(AclOperation.DESCRIBE, ResourceKind.TOPIC, topic)
    }


def _keys(assigned: Mapping[str, list[int]]) -> Iterable[Partition]:
    return ((topic, index) for topic, partitions in assigned.items() for index in partitions)
