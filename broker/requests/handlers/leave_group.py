"""LeaveGroup (API key 13, versions 0-5; KIP-345, KIP-800): remove members from a classic group.

KIP-345 (several members in one request, static members by instance id), KIP-800 (reason).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from moldau.broker.coordinators.groups import Groups
from moldau.broker.runtime.pending import COORDINATOR, Pending
from moldau.coordinator.classic.membership import BATCH_VERSION
from moldau.coordinator.group.events import Leave
from moldau.coordinator.runtime.machine import Waiter
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

if TYPE_CHECKING:
    from moldau.broker.network.route import RequestContext


class LeaveGroupServices(Protocol):
    @property
    def groups(self) -> Groups: ...


def handle(
    services: LeaveGroupServices, context: RequestContext, request: LeaveGroupRequest
) -> LeaveGroupResponse | Pending[LeaveGroupResponse]:
    runner = services.groups.runner_of(request.group_id)
    if isinstance(runner, ErrorCode):
        return LeaveGroupResponse(error_code=runner if request.group_id else ErrorCode.INVALID_GROUP_ID)
    if context.version < BATCH_VERSION:
        request.members = [MemberIdentity(member_id=request.member_id)]
    reply: Pending[LeaveGroupResponse] = Pending(waits_for=COORDINATOR)
    runner.submit(Leave(Waiter(reply, context.version), request))
    return reply
