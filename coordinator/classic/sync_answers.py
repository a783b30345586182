"""The responses to SyncGroup: the assignment of each member, or an error."""

from __future__ import annotations

from moldau.coordinator.classic.group import ClassicGroup
from moldau.coordinator.classic.member import NO_ASSIGNMENT, Member
from moldau.coordinator.classic.sessions import expect_heartbeat
from moldau.coordinator.group.step import GroupStep
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.sync_group import SyncGroupResponse


def sync_response(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    """The response with the member's assignment."""
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
    )


def sync_refusal(error: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error, assignment=NO_ASSIGNMENT)


def answer_syncs(step: GroupStep, group: ClassicGroup) -> None:
    """Answer all parked syncs with their members' assignments."""
    for member in group.members.values():
        waiter, member.syncing = member.syncing, None
        if waiter is not None:
            step.reply(waiter, sync_response(group, member))
            expect_heartbeat(step, group, member)


def refuse_syncs(step: GroupStep, group: ClassicGroup, error: ErrorCode) -> None:
    """Answer all parked syncs with an error. The assignment of the generation is void."""
    for member in group.members.values():
        member.assignment = NO_ASSIGNMENT
        waiter, member.syncing = member.syncing, None
        if waiter is not None:
            step.reply(waiter, sync_refusal(error))
            expect_heartbeat(step, group, member)


def refuse_sync(step: GroupStep, member: Member, error: ErrorCode) -> None:
    """Answer the member's parked sync, if there is one, with an error."""
    waiter, member.syncing = member.syncing, None
    if waiter is not None:
        step.reply(waiter, sync_refusal(error))
