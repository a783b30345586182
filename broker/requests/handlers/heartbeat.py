"""Heartbeat (API key 12, versions 0-4; KIP-345): keeps a member of a classic group in its session.

KIP-345: static members, from version 3 on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from moldau.broker.coordinators.groups import Groups
from moldau.broker.runtime.pending import COORDINATOR, Pending
from moldau.coordinator.group.events import Heartbeat
from moldau.coordinator.runtime.machine import Waiter
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from moldau.broker.network.route import RequestContext


class HeartbeatServices(Protocol):
    @property
    def groups(self) -> Groups: ...


def handle(
    services: HeartbeatServices, context: RequestContext, request: HeartbeatRequest
) -> HeartbeatResponse | Pending[HeartbeatResponse]:
    runner = services.groups.runner_of(request.group_id)
    if runner is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        # Sessions begin when the group is loaded, as in Apache Kafka: until then no member can miss one.
        return HeartbeatResponse()
    if isinstance(runner, ErrorCode):
        return HeartbeatResponse(error_code=runner if request.group_id else ErrorCode.INVALID_GROUP_ID)
    reply: Pending[HeartbeatResponse] = Pending(waits_for=COORDINATOR)
    runner.submit(Heartbeat(Waiter(reply, context.version), request))
    return reply
