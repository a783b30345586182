"""The records of share groups: their types, the values decoded from them, and functions that make the records to
write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from moldau.coordinator.group.records import RecordChange, RecordType
from moldau.coordinator.share.assignor import NOTHING, Assigned
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
    TopicInfo,
    TopicPartitions,
    TopicPartitionsInfo,
)

RECORDS: Final = (
    RecordType(10, ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue, version=0),
    RecordType(11, ShareGroupMetadataKey, ShareGroupMetadataValue, version=0),
    RecordType(12, ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue, version=0),
    RecordType(13, ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue, version=0),
    RecordType(14, ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue, version=0),
    RecordType(15, ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue, version=0),
)
STABLE: Final = 0
"""The state in the record of a member; a member of a share group has no other."""


class Member(NamedTuple):
    """A member of a share group, decoded from its metadata record and its assignment record."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    """The names of the topics to which the member subscribes."""
    epoch: int = 0
    previous_epoch: int = -1
    assigned: Assigned = NOTHING


class TopicState(NamedTuple):
    """The partitions of one topic for which the group has a state at the share coordinator."""

    name: str
    partitions: frozenset[int]


Topics: TypeAlias = Mapping[bytes, TopicState]
NO_TOPICS: Final[Topics] = MappingProxyType({})
NO_NAMES: Final[Mapping[bytes, str]] = MappingProxyType({})


class StateTopics(NamedTuple):
    """The share partitions of a group, by the id of their topic."""

    initializing: Topics = NO_TOPICS
    """The partitions whose initialization is under way or failed, by topic id."""
    initialized: Topics = NO_TOPICS
    """The initialized partitions, which may be assigned, by topic id."""
    deleting: Mapping[bytes, str] = NO_NAMES
    """The names of the topics whose state is being deleted, by topic id."""


def epoch_change(group_id: str, epoch: int, metadata_hash: int) -> RecordChange:
    value = ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return RecordChange(group_id, ShareGroupMetadataKey(group_id=group_id), value)


def member_change(group_id: str, member: Member) -> RecordChange:
    value = ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
    )
    return RecordChange(group_id, ShareGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value)


def target_epoch_change(group_id: str, epoch: int, wall_ms: int) -> RecordChange:
    value = ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=wall_ms)
    return RecordChange(group_id, ShareGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def target_change(group_id: str, member_id: str, target: Assigned) -> RecordChange:
    key = ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return RecordChange(group_id, key, ShareGroupTargetAssignmentMemberValue(topic_partitions=grouped_by_topic(target)))


def current_change(group_id: str, member: Member) -> RecordChange:
    value = ShareGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=STABLE,
        assigned_partitions=grouped_by_topic(member.assigned),
    )
    key = ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    return RecordChange(group_id, key, value)


def state_topics_change(group_id: str, topics: StateTopics) -> RecordChange:
    value = ShareGroupStatePartitionMetadataValue(
        initializing_topics=topics_info(topics.initializing),
        initialized_topics=topics_info(topics.initialized),
        deleting_topics=[TopicInfo(topic_id=key, topic_name=name) for key, name in sorted(topics.deleting.items())],
    )
    return RecordChange(group_id, ShareGroupStatePartitionMetadataKey(group_id=group_id), value)


def topics_info(topics: Topics) -> list[TopicPartitionsInfo]:
    return [
        TopicPartitionsInfo(topic_id=topic_id, topic_name=name, partitions=sorted(partitions))
        for topic_id, (name, partitions) in sorted(topics.items())
    ]


def member_tombstones(group_id: str, member_id: str) -> list[RecordChange]:
    return [
        RecordChange(group_id, ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        RecordChange(group_id, ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        RecordChange(group_id, ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def group_tombstones(group_id: str, members: Mapping[str, object]) -> list[RecordChange]:
    changes = [change for member_id in members for change in member_tombstones(group_id, member_id)]
    keys = (
        ShareGroupTargetAssignmentMetadataKey(group_id=group_id),
        ShareGroupStatePartitionMetadataKey(group_id=group_id),
        ShareGroupMetadataKey(group_id=group_id),
    )
    return [*changes, *(RecordChange(group_id, key, None) for key in keys)]


def grouped_by_topic(partitions: Iterable[tuple[bytes, int]]) -> list[TopicPartitions]:
    topics: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(partitions):
        topics.setdefault(topic_id, []).append(index)
    return [TopicPartitions(topic_id=topic_id, partitions=indexes) for topic_id, indexes in topics.items()]


def assigned_partitions(topics: Iterable[TopicPartitions]) -> Assigned:
    return frozenset((topic.topic_id, index) for topic in topics for index in topic.partitions)
