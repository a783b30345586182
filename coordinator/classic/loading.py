"""Restoring a classic group from its last record, and its changes when its partition is loaded or lost."""

from __future__ import annotations

from moldau.coordinator.classic.group import ClassicGroup
from moldau.coordinator.classic.group_state import EMPTY, STABLE
from moldau.coordinator.classic.member import Member
from moldau.coordinator.classic.rebalance import prepare_rebalance, refuse_join
from moldau.coordinator.classic.sessions import expect_heartbeat
from moldau.coordinator.classic.sync_answers import refuse_sync
from moldau.coordinator.group.step import GroupStep
from moldau.coordinator.runtime.events import Loaded, Unloaded
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.join_group import JoinGroupRequestProtocol
from moldau.protocol.records.offsets import GroupMetadataValue, MemberMetadata


def restore(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """Restore a group from its record: stable if every member has its assignment, or empty."""
    timestamp = value.current_state_timestamp
    group = ClassicGroup(group_id, None if timestamp == -1 else timestamp)
    group.generation = value.generation
    group.protocol_type = value.protocol_type or None
    group.protocol_name = value.protocol
    group.leader_id = value.leader
    for stored in value.members:
        group.add(restore_member(value, stored))
    group.state = STABLE if group.members else EMPTY
    group.learn_subscription()
    return group


def restore_member(value: GroupMetadataValue, stored: MemberMetadata) -> Member:
    """Restore a member. Of its protocols the record holds only the one that the group chose."""
    timeout_ms = stored.rebalance_timeout
    return Member(
        member_id=stored.member_id,
        group_instance_id=stored.group_instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        rebalance_timeout_ms=stored.session_timeout if timeout_ms == -1 else timeout_ms,
        session_timeout_ms=stored.session_timeout,
        protocol_type=value.protocol_type,
        protocols=[JoinGroupRequestProtocol(name=value.protocol or "", metadata=stored.subscription)],
        assignment=stored.assignment,
    )


def loaded(step: GroupStep, group: ClassicGroup, _event: Loaded) -> None:
    """Begin the sessions again once the partition is loaded, so that the members have time to find this coordinator.

    A group above `group.max.size` rebalances; the members that join first are admitted.
    """
    for member in group.members.values():
        expect_heartbeat(step, group, member)
    if len(group.members) > step.config.max_size:
        prepare_rebalance(step, group, f"{len(group.members)} members are more than are allowed")


def unloaded(step: GroupStep, group: ClassicGroup, _event: Unloaded) -> None:
    """Answer parked requests with NOT_COORDINATOR, so that clients look up the new
    coordinator.
    """
    for member in group.members.values():
        refuse_join(step, group, member, ErrorCode.NOT_COORDINATOR, "")
        refuse_sync(step, member, ErrorCode.NOT_COORDINATOR)
