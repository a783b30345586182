"""LeaveGroup (API key 13, versions 0-5; KIP-345, KIP-800): removes members from a classic group.

3: several members in one request, static ones by instance id (KIP-345) · 5: a reason (KIP-800).
"""

from __future__ import annotations

from typing import Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.coordinator import submit_event
from moldau.broker.apis.needs import needs, on_group
from moldau.broker.apis.parts import in_parts
from moldau.broker.apis.services import Services
from moldau.broker.network.route import RequestContext
from moldau.broker.runtime.pending import Reply
from moldau.coordinator.classic.events import Leave
from moldau.coordinator.classic.membership import BATCH_VERSION
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from moldau.security.access import AclOperation


def handle(services: Services, context: RequestContext, request: LeaveGroupRequest) -> Reply[LeaveGroupResponse]:
    if context.version < BATCH_VERSION:
        request.members = [MemberIdentity(member_id=request.member_id)]
    return submit_event(
        services.groups.runner_of(request.group_id),
        context.version,
        lambda waiter: Leave(waiter, request),
        lambda error: LeaveGroupResponse(error_code=error if request.group_id else ErrorCode.INVALID_GROUP_ID),
    )


API: Final = Api(
    LeaveGroupRequest, broker=handle, needs=needs(on_group, AclOperation.READ, "group_id"), lists=[in_parts("members")]
)
