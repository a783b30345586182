"""Replay of the records of a share group. A share group changes only here, both in a loaded shard and while a shard
loads."""

from __future__ import annotations

from collections.abc import Iterable

from moldau.coordinator.group.membership import FIRST_EPOCH
from moldau.coordinator.group.records import RecordChange
from moldau.coordinator.share.assignor import NOTHING
from moldau.coordinator.share.group import ShareGroup
from moldau.coordinator.share.records import Member, StateTopics, Topics, TopicState, assigned_partitions
from moldau.protocol.records.share_groups import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
    TopicPartitionsInfo,
)


def replay(group: ShareGroup | None, change: RecordChange, is_loaded: bool) -> ShareGroup | None:
    """The group after a record is applied; None if the record is a tombstone of the group. A tombstone about a group
    that does not exist is ignored."""
    if group is None:
        if change.value is None:
            return None
        group = ShareGroup(change.group_id)
    match change.key:
        case ShareGroupMetadataKey():
            if change.value is None:
                return None
            assert isinstance(change.value, ShareGroupMetadataValue)
            group.epoch, group.metadata_hash = change.value.epoch, change.value.metadata_hash
        case ShareGroupTargetAssignmentMetadataKey():
            _target_epoch(group, change.value)
        case ShareGroupTargetAssignmentMemberKey(member_id=member_id):
            _target(group, member_id, change.value)
        case ShareGroupMemberMetadataKey(member_id=member_id):
            _member(group, member_id, change.value)
        case ShareGroupCurrentMemberAssignmentKey(member_id=member_id):
            _current(group, member_id, change.value)
        case ShareGroupStatePartitionMetadataKey():
            _state_topics(group, change.value, is_loaded=is_loaded)
    return group


def _target_epoch(group: ShareGroup, value: object) -> None:
    if value is None:
        group.assignment_epoch, group.assignment_ms = FIRST_EPOCH, 0
        return
    assert isinstance(value, ShareGroupTargetAssignmentMetadataValue)
    group.assignment_epoch, group.assignment_ms = value.assignment_epoch, value.assignment_timestamp


def _target(group: ShareGroup, member_id: str, value: object) -> None:
    if value is None:
        group.targets.pop(member_id, None)
        return
    assert isinstance(value, ShareGroupTargetAssignmentMemberValue)
    group.targets[member_id] = assigned_partitions(value.topic_partitions)


def _member(group: ShareGroup, member_id: str, value: object) -> None:
    if value is None:
        group.members.pop(member_id, None)
        return
    assert isinstance(value, ShareGroupMemberMetadataValue)
    member = group.members.get(member_id, Member(member_id))
    group.members[member_id] = member._replace(
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topics=frozenset(value.subscribed_topic_names),
    )


def _current(group: ShareGroup, member_id: str, value: object) -> None:
    member = group.members.get(member_id)
    if value is None:
        if member is not None:
            group.members[member_id] = member._replace(epoch=-1, previous_epoch=-1, assigned=NOTHING)
        return
    assert isinstance(value, ShareGroupCurrentMemberAssignmentValue)
    group.members[member_id] = (member or Member(member_id))._replace(
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        assigned=assigned_partitions(value.assigned_partitions),
    )


def _state_topics(group: ShareGroup, value: object, *, is_loaded: bool) -> None:
    """Replay the record of the group's share partitions. If `is_loaded`, this coordinator wrote the record and begins
    the initialization itself."""
    if value is None:
        group.state_topics = StateTopics()
        return
    assert isinstance(value, ShareGroupStatePartitionMetadataValue)
    group.state_topics = StateTopics(
        topic_states_of(value.initializing_topics),
        topic_states_of(value.initialized_topics),
        {topic.topic_id: topic.topic_name for topic in value.deleting_topics},
    )
    if is_loaded:
        for topic_id in group.state_topics.initializing:
            group.initialized_ms.setdefault(topic_id, None)


def topic_states_of(infos: Iterable[TopicPartitionsInfo]) -> Topics:
    return {each.topic_id: TopicState(each.topic_name, frozenset(each.partitions)) for each in infos}
