"""The records of streams groups: conversions between the structs of the log and the values of the machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from moldau.coordinator.group.membership import LEAVE_EPOCH
from moldau.coordinator.group.records import RecordChange, RecordType
from moldau.coordinator.streams.member import Member, MemberState, UserEndpoint
from moldau.coordinator.streams.tasks import NONE_ASSIGNED, AssignedTasks, EpochsOfTasks, Tasks, TaskSet, task_set
from moldau.coordinator.streams.topology import InternalTopic, Topology
from moldau.protocol.records.streams_groups import (
    CopartitionGroup,
    Endpoint,
    KeyValue,
    LastAssignmentConfig,
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
    Subtopology,
    TargetTaskIds,
    TaskIds,
    TopicConfig,
    TopicInfo,
)

NO_DESCRIPTIONS: Final = (-1, -1)
"""The topology epochs of stored and of rejected descriptions of a group that has none
(`StreamsGroup.description_epochs`)."""
RECORDS: Final = (
    RecordType(17, StreamsGroupMetadataKey, StreamsGroupMetadataValue, version=0),
    RecordType(19, StreamsGroupMemberMetadataKey, StreamsGroupMemberMetadataValue, version=0),
    RecordType(20, StreamsGroupTargetAssignmentMetadataKey, StreamsGroupTargetAssignmentMetadataValue, version=0),
    RecordType(21, StreamsGroupTargetAssignmentMemberKey, StreamsGroupTargetAssignmentMemberValue, version=0),
    RecordType(22, StreamsGroupCurrentMemberAssignmentKey, StreamsGroupCurrentMemberAssignmentValue, version=0),
    RecordType(23, StreamsGroupTopologyKey, StreamsGroupTopologyValue, version=0),
)

# Values into changes


def epoch_change(
    group_id: str,
    epoch: int,
    metadata_hash: int,
    validated_topology_epoch: int,
    configs: Mapping[str, str],
    description_epochs: tuple[int, int] = NO_DESCRIPTIONS,
) -> RecordChange:
    """The record of a new group epoch. `description_epochs` are the fields of a plugin of Apache Kafka 4.4; they are
    written unchanged."""
    stored, failed = description_epochs
    value = StreamsGroupMetadataValue(
        epoch=epoch,
        metadata_hash=metadata_hash,
        validated_topology_epoch=validated_topology_epoch,
        last_assignment_configs=[LastAssignmentConfig(key=key, value=configs[key]) for key in sorted(configs)],
        stored_description_topology_epoch=stored,
        failed_description_topology_epoch=failed,
    )
    return RecordChange(group_id, StreamsGroupMetadataKey(group_id=group_id), value)


def topology_change(group_id: str, topology: Topology) -> RecordChange:
    subtopologies = [
        Subtopology(
            subtopology_id=each.subtopology_id,
            source_topics=list(each.source_topics),
            source_topic_regex=list(each.source_topic_regex),
            state_changelog_topics=_topic_infos(each.state_changelog_topics),
            repartition_sink_topics=list(each.repartition_sink_topics),
            repartition_source_topics=_topic_infos(each.repartition_source_topics),
            copartition_groups=[
                CopartitionGroup(
                    source_topics=list(group.source_topics),
                    source_topic_regex=list(group.source_topic_regex),
                    repartition_source_topics=list(group.repartition_source_topics),
                )
                for group in each.copartition_groups
            ],
        )
        for each in topology.subtopologies.values()
    ]
    value = StreamsGroupTopologyValue(epoch=topology.epoch, subtopologies=subtopologies)
    return RecordChange(group_id, StreamsGroupTopologyKey(group_id=group_id), value)


def _topic_infos(topics: Iterable[InternalTopic]) -> list[TopicInfo]:
    return [
        TopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=[TopicConfig(key=key, value=value) for key, value in topic.configs],
        )
        for topic in topics
    ]


def member_change(group_id: str, member: Member) -> RecordChange:
    endpoint = member.user_endpoint
    value = StreamsGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[KeyValue(key=key, value=member.client_tags[key]) for key in sorted(member.client_tags)],
    )
    return RecordChange(group_id, StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value)


def current_change(group_id: str, member: Member) -> RecordChange:
    """The record of the member's epoch, of the tasks that it has, and of the tasks that it has to revoke."""
    value = StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        active_tasks=_with_epochs(member.assigned.active),
        standby_tasks=_without_epochs(member.assigned.standby),
        warmup_tasks=_without_epochs(member.assigned.warmup),
        active_tasks_pending_revocation=_with_epochs(member.to_revoke.active),
        standby_tasks_pending_revocation=_without_epochs(member.to_revoke.standby),
        warmup_tasks_pending_revocation=_without_epochs(member.to_revoke.warmup),
    )
    key = StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    return RecordChange(group_id, key, value)


def _with_epochs(tasks: EpochsOfTasks) -> list[TaskIds]:
    return [
        TaskIds(
            subtopology_id=key,
            partitions=sorted(epochs),
            assignment_epochs=[epochs[partition] for partition in sorted(epochs)],
        )
        for key, epochs in sorted(tasks.items())
    ]


def _without_epochs(tasks: TaskSet) -> list[TaskIds]:
    return [TaskIds(subtopology_id=key, partitions=sorted(tasks[key])) for key in sorted(tasks)]


def target_change(group_id: str, member_id: str, tasks: Tasks) -> RecordChange:
    value = StreamsGroupTargetAssignmentMemberValue(
        active_tasks=_target(tasks.active), standby_tasks=_target(tasks.standby), warmup_tasks=_target(tasks.warmup)
    )
    key = StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return RecordChange(group_id, key, value)


def _target(tasks: TaskSet) -> list[TargetTaskIds]:
    return [TargetTaskIds(subtopology_id=key, partitions=sorted(tasks[key])) for key in sorted(tasks)]


def target_epoch_change(group_id: str, epoch: int, assignment_ms: int) -> RecordChange:
    """The record of the epoch for which a target was computed. `assignment_ms` is the wall-clock time (ms) of the
    computation."""
    value = StreamsGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=assignment_ms)
    return RecordChange(group_id, StreamsGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def member_tombstones(group_id: str, member_id: str) -> list[RecordChange]:
    keys = (
        StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id),
        StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member_id),
    )
    return [RecordChange(group_id, key, None) for key in keys]


def group_tombstones(group_id: str, member_ids: list[str]) -> list[RecordChange]:
    """The tombstones of all records of a group and its members, in an order in which `replay` accepts each of them."""
    members = [member_tombstones(group_id, member_id) for member_id in member_ids]
    return [
        *(tombstones[0] for tombstones in members),
        *(tombstones[1] for tombstones in members),
        RecordChange(group_id, StreamsGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *(tombstones[2] for tombstones in members),
        RecordChange(group_id, StreamsGroupMetadataKey(group_id=group_id), None),
        RecordChange(group_id, StreamsGroupTopologyKey(group_id=group_id), None),
    ]


# Records into values


def with_metadata(member: Member, value: StreamsGroupMemberMetadataValue) -> Member:
    endpoint = value.user_endpoint
    return replace(
        member,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        topology_epoch=value.topology_epoch,
        process_id=value.process_id,
        user_endpoint=None if endpoint is None else UserEndpoint(endpoint.host, endpoint.port),
        client_tags={tag.key: tag.value for tag in value.client_tags},
    )


def with_assignment(member: Member, value: StreamsGroupCurrentMemberAssignmentValue) -> Member:
    return replace(
        member,
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState(value.state),
        assigned=AssignedTasks(
            _epochs(value.active_tasks, value.member_epoch), task_set(value.standby_tasks), task_set(value.warmup_tasks)
        ),
        to_revoke=AssignedTasks(
            _epochs(value.active_tasks_pending_revocation, value.member_epoch),
            task_set(value.standby_tasks_pending_revocation),
            task_set(value.warmup_tasks_pending_revocation),
        ),
    )


def without_assignment(member: Member) -> Member:
    return replace(
        member,
        epoch=LEAVE_EPOCH,
        previous_epoch=LEAVE_EPOCH,
        assigned=NONE_ASSIGNED,
        to_revoke=NONE_ASSIGNED,
    )


def _epochs(listed: Iterable[TaskIds], member_epoch: int) -> EpochsOfTasks:
    """Decode active tasks, with the epoch in which the member got each of them. If a record has no epochs, as records
    of an earlier version, the member's epoch is taken for all tasks."""
    found: dict[str, dict[int, int]] = {}
    for each in listed:
        epochs = each.assignment_epochs or ()
        if len(epochs) != len(each.partitions):
            epochs = [member_epoch] * len(each.partitions)
        found[each.subtopology_id] = dict(zip(each.partitions, epochs, strict=True))
    return found


def target_of(value: StreamsGroupTargetAssignmentMemberValue) -> Tasks:
    return Tasks(task_set(value.active_tasks), task_set(value.standby_tasks), task_set(value.warmup_tasks))
