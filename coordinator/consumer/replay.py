"""Replay of the records of a consumer group. A consumer group changes only here, both in a loaded shard and while a
shard loads.

A coordinator may load its log while the log is compacted. Records that later records supersede may then be missing, and
the group is correct only after the later records. Therefore the tombstone of a member or of a group also removes
everything that belongs to it, and a partition belongs to the member whose record was replayed last.

DIVERGES: Apache Kafka 4.3.1 refuses to load a log in which the tombstone of a member or of a group comes before those
of its partitions, targets and members (KAFKA-21102).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from moldau.coordinator.consumer.group import ConsumerGroup, ResolvedRegex
from moldau.coordinator.consumer.member import (
    NO_PARTITIONS,
    ConsumerMember,
    with_assignment,
    with_metadata,
)
from moldau.coordinator.group.membership import LEAVE_EPOCH, NO_ASSIGNMENT_EPOCH
from moldau.coordinator.group.records import RecordChange
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
)


def replay(group: ConsumerGroup | None, change: RecordChange) -> ConsumerGroup | None:
    """The group after a record is applied; None if the record is a tombstone of the group. A tombstone about a group
    that does not exist is ignored."""
    if change.value is None and (group is None or isinstance(change.key, ConsumerGroupMetadataKey)):
        return None
    if group is None:
        group = ConsumerGroup(change.group_id)
    REPLAYS[type(change.key)](group, change.key, change.value)
    return group


def _replay_epoch(group: ConsumerGroup, _key: ConsumerGroupMetadataKey, value: ConsumerGroupMetadataValue) -> None:
    group.epoch = value.epoch
    group.metadata_hash = value.metadata_hash


def _replay_partition_metadata(
    group: ConsumerGroup, _key: ConsumerGroupPartitionMetadataKey, value: ConsumerGroupPartitionMetadataValue | None
) -> None:
    group.has_partition_metadata = value is not None


def _replay_member(
    group: ConsumerGroup, key: ConsumerGroupMemberMetadataKey, value: ConsumerGroupMemberMetadataValue | None
) -> None:
    member = group.members.get(key.member_id)
    if value is not None:
        group.put_member(with_metadata(member or ConsumerMember(key.member_id), value))
    elif member is not None:
        group.targets.pop(key.member_id, None)
        group.remove_member(key.member_id)


def _replay_current(
    group: ConsumerGroup,
    key: ConsumerGroupCurrentMemberAssignmentKey,
    value: ConsumerGroupCurrentMemberAssignmentValue | None,
) -> None:
    member = group.members.get(key.member_id)
    if value is not None:
        group.put_member(with_assignment(member or ConsumerMember(key.member_id), value))
    elif member is not None:
        left = replace(
            member, epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH, assigned=NO_PARTITIONS, revoking=NO_PARTITIONS
        )
        group.put_member(left)


def _replay_target(
    group: ConsumerGroup,
    key: ConsumerGroupTargetAssignmentMemberKey,
    value: ConsumerGroupTargetAssignmentMemberValue | None,
) -> None:
    if value is None:
        group.targets.pop(key.member_id, None)
    else:
        group.targets[key.member_id] = {topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions}


def _replay_target_epoch(
    group: ConsumerGroup,
    _key: ConsumerGroupTargetAssignmentMetadataKey,
    value: ConsumerGroupTargetAssignmentMetadataValue | None,
) -> None:
    if value is None:
        group.assignment_epoch, group.assignment_ms = NO_ASSIGNMENT_EPOCH, 0
    else:
        group.assignment_epoch, group.assignment_ms = value.assignment_epoch, value.assignment_timestamp


def _replay_regex(
    group: ConsumerGroup, key: ConsumerGroupRegularExpressionKey, value: ConsumerGroupRegularExpressionValue | None
) -> None:
    resolved = None if value is None else ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
    group.put_regex(key.regular_expression, resolved)


REPLAYS: Final[Mapping[type, Callable[[ConsumerGroup, Any, Any], None]]] = {
    ConsumerGroupMetadataKey: _replay_epoch,
    ConsumerGroupPartitionMetadataKey: _replay_partition_metadata,
    ConsumerGroupMemberMetadataKey: _replay_member,
    ConsumerGroupTargetAssignmentMetadataKey: _replay_target_epoch,
    ConsumerGroupTargetAssignmentMemberKey: _replay_target,
    ConsumerGroupCurrentMemberAssignmentKey: _replay_current,
    ConsumerGroupRegularExpressionKey: _replay_regex,
}
"""The function that replays each type of record. That of `ConsumerGroupMetadataKey` gets no tombstone, because `replay`
handles it."""
