"""The records of consumer groups in `__consumer_offsets`, as Apache Kafka 4.3.1 writes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from moldau.coordinator.consumer.assignors import Assignment
from moldau.coordinator.consumer.member import ConsumerMember, assignment_value, metadata_value
from moldau.coordinator.group.records import RecordChange, RecordType
from moldau.protocol.records.consumer_groups import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TargetTopicPartitions,
)

RECORDS: Final = (
    RecordType(3, ConsumerGroupMetadataKey, ConsumerGroupMetadataValue, version=0),
    RecordType(4, ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue, version=0),
    RecordType(5, ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue, version=0),
    RecordType(6, ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue, version=0),
    RecordType(7, ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue, version=0),
    RecordType(8, ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue, version=0),
    RecordType(16, ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue, version=0),
)


def epoch_change(group_id: str, epoch: int, metadata_hash: int) -> RecordChange:
    """The record of a new group epoch."""
    value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return RecordChange(group_id, ConsumerGroupMetadataKey(group_id=group_id), value)


def member_change(group_id: str, member: ConsumerMember) -> RecordChange:
    """The record of a member's subscription and client."""
    key = ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id)
    return RecordChange(group_id, key, metadata_value(member))


def current_change(group_id: str, member: ConsumerMember) -> RecordChange:
    """The record of the epoch and the partitions of a member."""
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    return RecordChange(group_id, key, assignment_value(member))


def target_change(group_id: str, member_id: str, assignment: Assignment) -> RecordChange:
    """The record of a member's target assignment."""
    key = ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    topics = [
        TargetTopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
        for topic_id, partitions in assignment.items()
    ]
    return RecordChange(group_id, key, ConsumerGroupTargetAssignmentMemberValue(topic_partitions=topics))


def target_epoch_change(group_id: str, epoch: int, assignment_ms: int) -> RecordChange:
    """The record of the group epoch for which the target assignment was computed, and of the time (wall clock, ms; 0 if
    it is unknown)."""
    value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=assignment_ms)
    return RecordChange(group_id, ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def regex_change(group_id: str, regex: str, topics: Iterable[str], version: int, resolved_ms: int) -> RecordChange:
    """The record of the topics that a regular expression matches."""
    key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
    value = ConsumerGroupRegularExpressionValue(topics=sorted(topics), version=version, timestamp=resolved_ms)
    return RecordChange(group_id, key, value)


def regex_tombstone(group_id: str, regex: str) -> RecordChange:
    return RecordChange(group_id, ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), None)


def partition_metadata_tombstone(group_id: str) -> RecordChange:
    return RecordChange(group_id, ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def member_tombstones(group_id: str, member_id: str) -> list[RecordChange]:
    return [
        RecordChange(group_id, key(group_id=group_id, member_id=member_id), None)
        for key in (
            ConsumerGroupCurrentMemberAssignmentKey,
            ConsumerGroupTargetAssignmentMemberKey,
            ConsumerGroupMemberMetadataKey,
        )
    ]


def group_tombstones(group_id: str, member_ids: Iterable[str], regexes: Iterable[str]) -> list[RecordChange]:
    """The tombstones of all records of a group and its members."""
    removed = [member_tombstones(group_id, member_id) for member_id in member_ids]
    current, targets, metadata = zip(*removed, strict=True) if removed else ((), (), ())
    target_epoch = RecordChange(group_id, ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None)
    group_epoch = RecordChange(group_id, ConsumerGroupMetadataKey(group_id=group_id), None)
    return [
        *current,
        *targets,
        target_epoch,
        *metadata,
        *(regex_tombstone(group_id, regex) for regex in regexes),
        partition_metadata_tombstone(group_id),
        group_epoch,
    ]
