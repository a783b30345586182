"""Heartbeat, and the removal of a member whose session ends without one."""

from __future__ import annotations

from moldau.coordinator.classic.group import ClassicGroup
from moldau.coordinator.classic.group_state import HEARTBEAT_ANSWERS
from moldau.coordinator.classic.rebalance import complete_if_all_joined, rebalance, remove_member
from moldau.coordinator.classic.sessions import expect_heartbeat
from moldau.coordinator.group.events import Heartbeat
from moldau.coordinator.group.step import GroupStep
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def heartbeat(step: GroupStep, group: ClassicGroup | None, event: Heartbeat) -> None:
    step.reply(event.waiter, HeartbeatResponse(error_code=answer(step, group, event.request)))


def answer(step: GroupStep, group: ClassicGroup | None, request: HeartbeatRequest) -> ErrorCode:
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID if request.group_id else ErrorCode.INVALID_GROUP_ID
    refusal = group.refusal_of(request.member_id, request.group_instance_id)
    if refusal is not ErrorCode.NONE:
        return refusal
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    expect_heartbeat(step, group, group.members[request.member_id])
    return HEARTBEAT_ANSWERS[group.state]


def session_timed_out(step: GroupStep, group: ClassicGroup, member_id: str) -> None:
    """Handle the session timer of a member, or of an id that was given to a client."""
    if member_id in group.pending_members:
        group.remove(member_id)
        complete_if_all_joined(step, group)
        return
    member = group.members.get(member_id)
    if member is None or member.is_kept_by_a_parked_request:
        return
    remove_member(step, group, member)
    rebalance(step, group, f"member {member_id!r} was not heard of for its session")
