"""JoinGroup: enter a group, or a new generation of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.runtime.pending import Pending
from coordinator.classic.rebalance import join_refusal
from coordinator.group.events import Join
from coordinator.runtime.effects import Waiter
from protocol.errors import ErrorCode
from protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

if TYPE_CHECKING:
    from broker.network.route import RequestContext
    from broker.node.node import Node as Broker


def handle(
    broker: Broker, context: RequestContext, request: JoinGroupRequest
) -> JoinGroupResponse | Pending[JoinGroupResponse]:
    runner = broker.groups.runner_of(request.group_id)
    reply: Pending[JoinGroupResponse] = Pending()
    waiter = Waiter(reply, context.version)
    if isinstance(runner, ErrorCode):
        error = runner if request.group_id else ErrorCode.INVALID_GROUP_ID
        return join_refusal(waiter, error, request.member_id)
    client_id = context.client_id or ""
    runner.submit(Join(waiter, request, client_id, f"/{context.client_host}", broker.groups.fresh_id()))
    return reply
