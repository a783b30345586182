"""The records of a classic group: its existence, and each generation with the members' assignments."""

from __future__ import annotations

from collections.abc import Mapping

from moldau.coordinator.classic.group import ClassicGroup
from moldau.coordinator.group.records import NO_TIMESTAMP, GroupChange
from moldau.protocol.records.offsets import GroupMetadataValue, MemberMetadata


def generation_change(group: ClassicGroup, assignments: Mapping[str, bytes]) -> GroupChange:
    """The record of the current generation, with these assignments by member id."""
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol_name,
        leader=group.leader_id,
        current_state_timestamp=NO_TIMESTAMP if group.changed_ms is None else group.changed_ms,
        members=[
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata_of(group.protocol_name),
                assignment=assignments[member.member_id],
            )
            for member in group.members.values()
        ],
    )
    return GroupChange(group.group_id, value)


def new_group_change(group: ClassicGroup) -> GroupChange:
    """The first record of a group without a generation."""
    changed_ms = NO_TIMESTAMP if group.changed_ms is None else group.changed_ms
    value = GroupMetadataValue(
        protocol_type="", generation=0, protocol=None, leader=None, current_state_timestamp=changed_ms
    )
    return GroupChange(group.group_id, value)
