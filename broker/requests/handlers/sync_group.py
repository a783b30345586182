"""SyncGroup (API key 14, versions 0-5; KIP-345, KIP-559): send and receive the assignment of a generation.

KIP-345 (static members), KIP-559 (protocol type and name). The reply waits until the leader's assignment is
committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from moldau.broker.coordinators.groups import Groups
from moldau.broker.runtime.pending import MEMBERS, Pending
from moldau.coordinator.classic.rebalance import sync_refusal
from moldau.coordinator.group.events import Sync
from moldau.coordinator.runtime.machine import Waiter
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from moldau.broker.network.route import RequestContext


class SyncGroupServices(Protocol):
    @property
    def groups(self) -> Groups: ...


def handle(
    services: SyncGroupServices, context: RequestContext, request: SyncGroupRequest
) -> SyncGroupResponse | Pending[SyncGroupResponse]:
    runner = services.groups.runner_of(request.group_id)
    if runner is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        # DIVERGES: what the member waits for is lost, so it has to join again. Apache passes this error on, which
        # consumers take for a fatal one when they sync.
        return sync_refusal(ErrorCode.REBALANCE_IN_PROGRESS)
    if isinstance(runner, ErrorCode):
        return sync_refusal(runner if request.group_id else ErrorCode.INVALID_GROUP_ID)
    reply: Pending[SyncGroupResponse] = Pending(waits_for=MEMBERS)
    runner.submit(Sync(Waiter(reply, context.version), request))
    return reply
