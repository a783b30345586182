"""The members of a group, of any type, as its coordinator describes them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from moldau.broker.cli.daily.client import Client, Partition
from moldau.broker.cli.daily.groups.listing import CONSUMER, SHARE, STREAMS, Group, at_coordinator
from moldau.broker.cli.daily.output import Row
from moldau.protocol.primitives import MalformedMessage

if TYPE_CHECKING:
    from moldau.protocol.messages.describe_groups import DescribedGroupMember

CLASSIC_VERSION: Final = 2
"""The size in bytes of the version with which the assignment of a classic consumer begins."""


@dataclass(slots=True)
class Member:
    """A member of a group as a row of output, and the partitions that are assigned to it."""

    row: Row
    assigned: list[Partition]


@dataclass(slots=True)
class DescribedGroup:
    """The state, the assignor and the members of a group, as its coordinator describes them."""

    state: str
    assignor: str
    members: list[Member] = field(default_factory=list)


def describe_group(client: Client, group: Group) -> DescribedGroup:
    """Describe a group. Its members are sorted by client id. Raises `Failure`."""
    ask = {CONSUMER: _consumer, SHARE: _share, STREAMS: _streams}.get(group.kind, _classic)
    described = at_coordinator(client, group.name, lambda: ask(client, group.name))
    described.members.sort(key=lambda each: (str(each.row["client"]), str(each.row["member"])))
    return described


def _classic(client: Client, group_id: str) -> DescribedGroup:
    from moldau.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

    request = DescribeGroupsRequest(groups=[group_id])
    (group,) = client.ask_coordinator(group_id, request, DescribeGroupsResponse).groups
    client.check(group.error_code, group.error_message, f"group {group_id}")
    members = []
    for each in group.members:
        assigned = _classic_assignment(each) if group.protocol_type == CONSUMER else []
        members.append(_member(each, each.group_instance_id, None, assigned, []))
    return DescribedGroup(group.group_state, group.protocol_data, members)


def _classic_assignment(member: DescribedGroupMember) -> list[Partition]:
    from moldau.protocol.compiler import decoder_of
    from moldau.protocol.records.offsets import ConsumerProtocolAssignment

    data = bytes(member.member_assignment)
    if not data:
        return []
    try:
        assignment, _ = decoder_of(ConsumerProtocolAssignment, 0)(data, CLASSIC_VERSION)
    except MalformedMessage:
        return []
    return [(each.topic, number) for each in assignment.assigned_partitions for number in each.partitions]


def _consumer(client: Client, group_id: str) -> DescribedGroup:
    from moldau.protocol.messages.consumer_group_describe import (
        ConsumerGroupDescribeRequest,
        ConsumerGroupDescribeResponse,
    )

    request = ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
    (group,) = client.ask_coordinator(group_id, request, ConsumerGroupDescribeResponse).groups
    client.check(group.error_code, group.error_message, f"group {group_id}")
    members = []
    for each in group.members:
        subscribed = [*each.subscribed_topic_names]
        if each.subscribed_topic_regex:
            subscribed.append(f"/{each.subscribed_topic_regex}/")
        assigned = _partitions(each.assignment.topic_partitions)
        members.append(_member(each, each.instance_id, each.member_epoch, assigned, subscribed))
    return DescribedGroup(group.group_state, group.assignor_name, members)


def _share(client: Client, group_id: str) -> DescribedGroup:
    from moldau.protocol.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse

    request = ShareGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
    (group,) = client.ask_coordinator(group_id, request, ShareGroupDescribeResponse).groups
    client.check(group.error_code, group.error_message, f"group {group_id}")
    members = [
        _member(
            each, None, each.member_epoch, _partitions(each.assignment.topic_partitions), each.subscribed_topic_names
        )
        for each in group.members
    ]
    return DescribedGroup(group.group_state, group.assignor_name, members)


def _streams(client: Client, group_id: str) -> DescribedGroup:
    from moldau.protocol.messages.streams_group_describe import (
        StreamsGroupDescribeRequest,
        StreamsGroupDescribeResponse,
    )

    request = StreamsGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
    (group,) = client.ask_coordinator(group_id, request, StreamsGroupDescribeResponse).groups
    client.check(group.error_code, group.error_message, f"group {group_id}")
    subtopologies = (group.topology.subtopologies or []) if group.topology is not None else []
    sources = {
        each.subtopology_id: [*each.source_topics, *(topic.name for topic in each.repartition_source_topics)]
        for each in subtopologies
    }
    members = []
    for each in group.members:
        assigned = [
            (topic, number)
            for task in each.assignment.active_tasks
            for topic in sources.get(task.subtopology_id, ())
            for number in task.partitions
        ]
        members.append(_member(each, each.instance_id, each.member_epoch, assigned, sorted({t for t, _ in assigned})))
    return DescribedGroup(group.group_state, group.assignor_name or "", members)


def _partitions(topics: Iterable[Any]) -> list[Partition]:
    return [(topic.topic_name, number) for topic in topics for number in topic.partitions]


def _member(
    member: Any, instance_id: str | None, epoch: int | None, assigned: list[Partition], subscribed: list[str]
) -> Member:
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(assigned):
        by_topic.setdefault(topic, []).append(number)
    row = {
        "member": member.member_id,
        "instance": instance_id,
        "client": member.client_id,
        "host": member.client_host.removeprefix("/"),
        "epoch": epoch,
        "assigned": [f"{topic}:{'+'.join(map(str, numbers))}" for topic, numbers in by_topic.items()],
        "assigned_partitions": by_topic,
        "subscribed": list(subscribed),
    }
    return Member(row, assigned)
