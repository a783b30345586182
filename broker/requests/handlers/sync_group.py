"""SyncGroup: hand out and receive a generation's assignment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.runtime.pending import Pending
from coordinator.classic.assignment import sync_refusal
from coordinator.group.events import Sync
from coordinator.runtime.effects import Waiter
from protocol.errors import ErrorCode
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from broker.network.route import RequestContext
    from broker.node.node import Node as Broker


def handle(
    broker: Broker, context: RequestContext, request: SyncGroupRequest
) -> SyncGroupResponse | Pending[SyncGroupResponse]:
    runner = broker.groups.runner_of(request.group_id)
    if runner is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        # DIVERGES: what the member waits for is lost, so it has to join again. Apache passes this error on, which
        # consumers take for a fatal one when they sync.
        return sync_refusal(ErrorCode.REBALANCE_IN_PROGRESS)
    if isinstance(runner, ErrorCode):
        return sync_refusal(runner if request.group_id else ErrorCode.INVALID_GROUP_ID)
    reply: Pending[SyncGroupResponse] = Pending()
    runner.submit(Sync(Waiter(reply, context.version), request))
    return reply
