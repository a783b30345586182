"""A group as its last record describes it: how it comes to life after loading, and how it goes with its partition."""

from __future__ import annotations

from coordinator.classic.assignment import share_refusal
from coordinator.classic.group import Group
from coordinator.classic.group_state import EMPTY, STABLE
from coordinator.classic.member import Member
from coordinator.classic.rebalance import prepare_rebalance, refuse_join
from coordinator.classic.sessions import expect_heartbeat
from coordinator.group.step import Turn
from protocol.errors import ErrorCode
from protocol.messages.join_group import JoinGroupRequestProtocol
from protocol.records.offsets import GroupMetadataValue, MemberMetadata


def restore(group_id: str, value: GroupMetadataValue) -> Group:
    """A generation in which everybody has an assignment, or an empty group."""
    timestamp = value.current_state_timestamp
    group = Group(group_id, None if timestamp == -1 else timestamp)
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
    """Of its protocols the record tells the one that was chosen."""
    patience_ms = stored.rebalance_timeout
    return Member(
        member_id=stored.member_id,
        group_instance_id=stored.group_instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        rebalance_timeout_ms=stored.session_timeout if patience_ms == -1 else patience_ms,
        session_timeout_ms=stored.session_timeout,
        protocol_type=value.protocol_type,
        protocols=[JoinGroupRequestProtocol(name=value.protocol or "", metadata=stored.subscription)],
        assignment=stored.assignment,
    )


def take_up(turn: Turn, group: Group) -> None:
    """Members have their whole session timeout to find us; a group over the limit has to decide again who stays."""
    for member in group.members.values():
        expect_heartbeat(turn, group, member)
    if len(group.members) > turn.config.max_size:
        prepare_rebalance(turn, group, f"{len(group.members)} members are more than are allowed")


def give_up(turn: Turn, group: Group) -> None:
    """Send all who wait to look for the new coordinator."""
    for member in group.members.values():
        refuse_join(turn, group, member, ErrorCode.NOT_COORDINATOR, "")
        share_refusal(turn, group, ErrorCode.NOT_COORDINATOR, member)
