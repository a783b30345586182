"""Heartbeats, and what happens when they stay away."""

from __future__ import annotations

from coordinator.classic.group import Group
from coordinator.classic.group_state import HEARTBEAT_ANSWERS
from coordinator.classic.rebalance import complete_if_all_joined, rebalance_or_go_on, remove_member
from coordinator.classic.sessions import expect_heartbeat
from coordinator.group.events import Heartbeat
from coordinator.group.step import Turn
from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def heartbeat(turn: Turn, event: Heartbeat) -> None:
    turn.reply(event.waiter, HeartbeatResponse(error_code=listen(turn, event.request)))


def listen(turn: Turn, request: HeartbeatRequest) -> ErrorCode:
    group = turn.groups.get(request.group_id)
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID if request.group_id else ErrorCode.INVALID_GROUP_ID
    refusal = group.refusal_of(request.member_id, request.group_instance_id)
    if refusal is not ErrorCode.NONE:
        return refusal
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    expect_heartbeat(turn, group, group.members[request.member_id])
    return HEARTBEAT_ANSWERS[group.state]


def session_is_over(turn: Turn, group: Group, member_id: str) -> None:
    """The session timer fired."""
    if member_id in group.pending_members:
        group.remove(member_id)
        complete_if_all_joined(turn, group)
        return
    member = group.members.get(member_id)
    if member is None or member.is_kept_by_a_parked_request:
        return
    remove_member(turn, group, member)
    rebalance_or_go_on(turn, group, f"member {member_id!r} was not heard of for its session")
