"""Replay of the records of a streams group. A streams group changes only here, both in a loaded shard and while a shard
loads.

The tombstone of a member or of a group also removes everything that belongs to it; `coordinator/consumer/replay.py`
says why.

DIVERGES: Apache Kafka 4.3.1 refuses to load a log in which the tombstone of a member or of a group comes before those
of its tasks, targets and members (KAFKA-21102).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from moldau.coordinator.group.membership import NO_ASSIGNMENT_EPOCH
from moldau.coordinator.group.records import RecordChange
from moldau.coordinator.streams.group import StreamsGroup
from moldau.coordinator.streams.member import Member
from moldau.coordinator.streams.records import target_of, with_assignment, with_metadata, without_assignment
from moldau.coordinator.streams.topology import topology_of
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.records.streams_groups import (
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
)


def replay(group: StreamsGroup | None, change: RecordChange) -> StreamsGroup | None:
    """The group after a record is applied; None if the record is a tombstone of the group. A tombstone about a group
    that does not exist is ignored.

    Raises `MalformedMessage` for a topology that no release writes.
    """
    if change.value is None and (group is None or isinstance(change.key, StreamsGroupMetadataKey)):
        return None
    if group is None:
        group = StreamsGroup(change.group_id)
    REPLAYS[type(change.key)](group, change.key, change.value)
    return group


def _epoch(group: StreamsGroup, _key: StreamsGroupMetadataKey, value: StreamsGroupMetadataValue) -> None:
    configs = {config.key: config.value for config in value.last_assignment_configs or ()}
    group.set_epoch(value.epoch, value.metadata_hash, value.validated_topology_epoch, configs)
    group.description_epochs = value.stored_description_topology_epoch, value.failed_description_topology_epoch


def _topology(group: StreamsGroup, _key: StreamsGroupTopologyKey, value: StreamsGroupTopologyValue | None) -> None:
    if value is None:
        group.set_topology(None)
        return
    topology = topology_of(value.epoch, value.subtopologies)
    if topology is None or value.epoch < 0:
        raise MalformedMessage(f"a topology of the group {group.group_id!r} that no release writes")
    group.set_topology(topology)


def _member(
    group: StreamsGroup, key: StreamsGroupMemberMetadataKey, value: StreamsGroupMemberMetadataValue | None
) -> None:
    member = group.members.get(key.member_id)
    if value is not None:
        group.put_member(with_metadata(member or Member(key.member_id), value))
    elif member is not None:
        group.targets.pop(key.member_id, None)
        group.remove_member(key.member_id)


def _target_epoch(
    group: StreamsGroup,
    _key: StreamsGroupTargetAssignmentMetadataKey,
    value: StreamsGroupTargetAssignmentMetadataValue | None,
) -> None:
    if value is None:
        group.set_assignment_epoch(NO_ASSIGNMENT_EPOCH, 0)
    else:
        group.set_assignment_epoch(value.assignment_epoch, value.assignment_timestamp)


def _target(
    group: StreamsGroup,
    key: StreamsGroupTargetAssignmentMemberKey,
    value: StreamsGroupTargetAssignmentMemberValue | None,
) -> None:
    if value is None:
        group.targets.pop(key.member_id, None)
    else:
        group.targets[key.member_id] = target_of(value)


def _current(
    group: StreamsGroup,
    key: StreamsGroupCurrentMemberAssignmentKey,
    value: StreamsGroupCurrentMemberAssignmentValue | None,
) -> None:
    member = group.members.get(key.member_id)
    if value is not None:
        group.put_member(with_assignment(member or Member(key.member_id), value))
    elif member is not None:
        group.put_member(without_assignment(member))


REPLAYS: Final[Mapping[type, Callable[[StreamsGroup, Any, Any], None]]] = {
    StreamsGroupMetadataKey: _epoch,
    StreamsGroupTopologyKey: _topology,
    StreamsGroupMemberMetadataKey: _member,
    StreamsGroupTargetAssignmentMetadataKey: _target_epoch,
    StreamsGroupTargetAssignmentMemberKey: _target,
    StreamsGroupCurrentMemberAssignmentKey: _current,
}
