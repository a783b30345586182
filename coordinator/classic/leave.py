"""LeaveGroup: members leave by themselves, or an operator removes them."""

from __future__ import annotations

from typing import Final

from moldau.coordinator.classic.group import ClassicGroup
from moldau.coordinator.classic.group_state import EMPTY
from moldau.coordinator.classic.rebalance import rebalance, remove_member
from moldau.coordinator.group.events import Leave
from moldau.coordinator.group.step import GroupStep, TimerKind
from moldau.coordinator.runtime.outcomes import ReplyWhenCommitted
from moldau.coordinator.runtime.write_errors import write_error
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse

BATCH_VERSION: Final = 3
"""From this version of LeaveGroup on, several members leave at once and each gets its own answer."""


def leave(step: GroupStep, group: ClassicGroup | None, event: Leave) -> None:
    request = event.request
    if not request.group_id:
        step.reply(event.waiter, LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID))
        return
    results = [result_of(identity, remove(step, group, identity)) for identity in request.members]
    response = LeaveGroupResponse(members=results)
    if event.waiter.version < BATCH_VERSION:
        response = LeaveGroupResponse(error_code=results[0].error_code)
    if group is not None and any(result.error_code == ErrorCode.NONE for result in results):
        if group.state is not EMPTY:
            rebalance(step, group, "members left")
        if step.changes:
            step.when_committed(ReplyWhenCommitted(event.waiter, response, refused_by_the_log))
            return
    step.reply(event.waiter, response)


def refused_by_the_log(error: ErrorCode) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=write_error(error))


def result_of(identity: MemberIdentity, error: ErrorCode) -> MemberResponse:
    return MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error)


def remove(step: GroupStep, group: ClassicGroup | None, identity: MemberIdentity) -> ErrorCode:
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    member_id = identity.member_id
    if not member_id and identity.group_instance_id is not None:
        # An operator names a static member by its instance id: it is removed under the id that it has now.
        member_id = group.static_members.get(identity.group_instance_id, "")
    if member_id in group.pending_members:
        step.cancel(TimerKind.SESSION, group, member_id)
        group.remove(member_id)
        return ErrorCode.NONE
    refusal = group.refusal_of(member_id, identity.group_instance_id)
    if refusal is ErrorCode.NONE:
        remove_member(step, group, group.members[member_id])
    return refusal
