"""Giving members what the leader planned for them, or the reason why there is nothing to give."""

from __future__ import annotations

from coordinator.classic.group import Group
from coordinator.classic.member import NO_ASSIGNMENT, Member
from coordinator.classic.sessions import expect_heartbeat
from coordinator.group.step import Turn
from protocol.errors import ErrorCode
from protocol.messages.sync_group import SyncGroupResponse


def share(group: Group, member: Member) -> SyncGroupResponse:
    """The member's part of the generation's assignment."""
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
    )


def sync_refusal(error: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error, assignment=NO_ASSIGNMENT)


def share_all(turn: Turn, group: Group) -> None:
    """Answer all parked syncs with their members' assignments."""
    for member in group.members.values():
        waiter, member.syncing = member.syncing, None
        if waiter is not None:
            turn.reply(waiter, share(group, member))
            expect_heartbeat(turn, group, member)


def share_refusal(turn: Turn, group: Group, error: ErrorCode, only: Member | None = None) -> None:
    """Answer parked syncs, of all members or of one, with an error; what was assigned to a whole group is void."""
    for member in [only] if only is not None else list(group.members.values()):
        if only is None:
            member.assignment = NO_ASSIGNMENT
        waiter, member.syncing = member.syncing, None
        if waiter is not None:
            turn.reply(waiter, sync_refusal(error))
            if only is None:
                expect_heartbeat(turn, group, member)
