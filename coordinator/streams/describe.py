"""StreamsGroupDescribe: the epochs, the topology and the members of a group with their tasks and targets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from moldau.coordinator.group.description import GroupDescription
from moldau.coordinator.group.group import Group, GroupStep
from moldau.coordinator.group.membership import answer_when_committed, group_not_found, wrong_group_kind
from moldau.coordinator.streams.configured_topology import ConfiguredInternalTopic, ConfiguredTopology
from moldau.coordinator.streams.events import DescribeStreamsGroup
from moldau.coordinator.streams.group import StreamsGroup
from moldau.coordinator.streams.member import Member
from moldau.coordinator.streams.task_assignor import NAME
from moldau.coordinator.streams.tasks import Tasks
from moldau.coordinator.streams.topology import InternalTopic
from moldau.coordinator.streams.topology import Topology as GroupTopology
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.streams_group_describe import (
    Assignment,
    DescribedGroup,
    Endpoint,
    KeyValue,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from moldau.protocol.messages.streams_group_describe import Member as DescribedMember


def describe_group(step: GroupStep, group: Group | None, event: DescribeStreamsGroup) -> None:
    """Describe the streams group with its present members and epochs. The response is sent once all records that the
    description depends on are committed."""
    described: DescribedGroup | GroupDescription[DescribedGroup]
    if isinstance(group, StreamsGroup):
        described = describe(group)
    else:
        refusal = group_not_found(event.group_id) if group is None else wrong_group_kind(event.group_id, "streams")
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
    )


def describe(group: StreamsGroup) -> GroupDescription[DescribedGroup]:
    topology = None
    if group.configured is not None and group.configured.is_ready:
        topology = configured_topology(group.configured)
    elif group.topology is not None:
        topology = raw_topology(group.topology)
    described = DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        topology=topology,
        members=[],
        assignor_name=NAME,
    )
    members = [(member, group.target_of(member_id)) for member_id, member in sorted(group.members.items())]
    return GroupDescription(described, (described_member(member, target) for member, target in members))


def configured_topology(topology: ConfiguredTopology) -> Topology:
    """The StreamsGroupDescribe topology with the decided sizes of its internal topics."""
    return Topology(
        epoch=topology.epoch,
        subtopologies=[
            Subtopology(
                subtopology_id=key,
                source_topics=sorted({*each.source_topics}),
                repartition_sink_topics=sorted({*each.repartition_sink_topics}),
                state_changelog_topics=topic_infos(each.state_changelog_topics),
                repartition_source_topics=topic_infos(each.repartition_source_topics),
            )
            for key, each in (topology.subtopologies or {}).items()
        ],
    )


def raw_topology(topology: GroupTopology) -> Topology:
    """The StreamsGroupDescribe topology as the members sent it."""
    return Topology(
        epoch=topology.epoch,
        subtopologies=[
            Subtopology(
                subtopology_id=key,
                source_topics=sorted(each.source_topics),
                repartition_sink_topics=sorted(each.repartition_sink_topics),
                state_changelog_topics=topic_infos(each.state_changelog_topics),
                repartition_source_topics=topic_infos(each.repartition_source_topics),
            )
            for key, each in sorted(topology.subtopologies.items())
        ],
    )


def topic_infos(topics: Iterable[InternalTopic | ConfiguredInternalTopic]) -> list[TopicInfo]:
    return [
        TopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=[KeyValue(key=key, value=value) for key, value in topic.configs],
        )
        for topic in sorted(topics, key=lambda topic: topic.name)
    ]


def described_member(member: Member, target: Tasks) -> DescribedMember:
    endpoint = member.user_endpoint
    return DescribedMember(
        member_id=member.member_id,
        member_epoch=member.epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[KeyValue(key=key, value=value) for key, value in member.client_tags.items()],
        assignment=Assignment(
            active_tasks=task_ids(member.assigned.active),
            standby_tasks=task_ids(member.assigned.standby),
            warmup_tasks=task_ids(member.assigned.warmup),
        ),
        target_assignment=Assignment(
            active_tasks=task_ids(target.active),
            standby_tasks=task_ids(target.standby),
            warmup_tasks=task_ids(target.warmup),
        ),
        is_classic=False,
    )


def task_ids(tasks: Mapping[str, Iterable[int]]) -> list[TaskIds]:
    return [TaskIds(subtopology_id=key, partitions=sorted(tasks[key])) for key in sorted(tasks)]
