"""Heartbeat: show that a member of a group lives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.runtime.pending import Pending
from coordinator.group.events import Heartbeat
from coordinator.runtime.effects import Waiter
from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from broker.network.route import RequestContext
    from broker.node.node import Node as Broker


def handle(
    broker: Broker, context: RequestContext, request: HeartbeatRequest
) -> HeartbeatResponse | Pending[HeartbeatResponse]:
    runner = broker.groups.runner_of(request.group_id)
    if runner is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        # Nobody is counted out while the group is loading.
        return HeartbeatResponse()
    if isinstance(runner, ErrorCode):
        return HeartbeatResponse(error_code=runner if request.group_id else ErrorCode.INVALID_GROUP_ID)
    reply: Pending[HeartbeatResponse] = Pending()
    runner.submit(Heartbeat(Waiter(reply, context.version), request))
    return reply
