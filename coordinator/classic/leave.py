"""LeaveGroup: members go, by themselves or by an operator's hand."""

from __future__ import annotations

from coordinator.classic.group import Group
from coordinator.classic.group_state import EMPTY
from coordinator.classic.rebalance import rebalance_or_go_on, remove_member
from coordinator.group.events import Leave
from coordinator.group.step import ReplyWhenCommitted, Turn, write_refusal
from coordinator.runtime.timers import TimerKind
from protocol.errors import ErrorCode
from protocol.messages.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse

BATCH_VERSION = 3
"""From this version of LeaveGroup on, several members leave at once and each gets its own answer."""


def leave(turn: Turn, event: Leave) -> None:
    request = event.request
    if not request.group_id:
        turn.reply(event.waiter, LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID))
        return
    group = turn.groups.get(request.group_id)
    results = [result_of(identity, take_out(turn, group, identity)) for identity in request.members]
    response = LeaveGroupResponse(members=results)
    if event.waiter.version < BATCH_VERSION:
        response = LeaveGroupResponse(error_code=results[0].error_code)
    if group is not None and any(result.error_code == ErrorCode.NONE for result in results):
        if group.state is not EMPTY:
            rebalance_or_go_on(turn, group, "members left")
        if turn.changes:
            turn.when_committed(ReplyWhenCommitted(event.waiter, response, refusal_of_the_log))
            return
    turn.reply(event.waiter, response)


def refusal_of_the_log(error: ErrorCode) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=write_refusal(error))


def result_of(identity: MemberIdentity, error: ErrorCode) -> MemberResponse:
    return MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error)


def take_out(turn: Turn, group: Group | None, identity: MemberIdentity) -> ErrorCode:
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    member_id = identity.member_id
    if not member_id and identity.group_instance_id is not None:
        # An operator names a static member: whatever its id is now.
        member_id = group.static_members.get(identity.group_instance_id, "")
    if member_id in group.pending_members:
        turn.cancel(TimerKind.SESSION, group, member_id)
        group.remove(member_id)
        return ErrorCode.NONE
    refusal = group.refusal_of(member_id, identity.group_instance_id)
    if refusal is ErrorCode.NONE:
        remove_member(turn, group, group.members[member_id])
    return refusal
