"""Heartbeat (API key 12, versions 0-4; KIP-345): keeps a member of a classic group in its session.

3: static members (KIP-345).
"""

from __future__ import annotations

from typing import Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.coordinator import heartbeat_hook, submit_event
from moldau.broker.apis.needs import needs, on_group
from moldau.broker.apis.services import Services
from moldau.broker.coordinators.held_heartbeats import CLIENTS
from moldau.broker.network.route import RequestContext
from moldau.broker.runtime.pending import Reply
from moldau.coordinator.classic.events import Heartbeat
from moldau.coordinator.runtime.machine import Waiter
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.security.access import AclOperation


def handle(services: Services, context: RequestContext, request: HeartbeatRequest) -> Reply[HeartbeatResponse]:
    runner = services.groups.runner_of(request.group_id)
    reply = submit_event(
        runner,
        context.version,
        lambda waiter: Heartbeat(waiter, request),
        lambda error: refusal(request.group_id, error),
    )
    if context.connection.software[0] in CLIENTS and not isinstance(runner, ErrorCode) and runner.is_idle:
        settled = runner.shard.settled_heartbeat(Heartbeat(Waiter(None, context.version), request))
        if settled is not None and settled.wait_max_ms:
            return services.groups.held_heartbeats.hold(request.group_id, settled.wait_max_ms)
    return reply


def refusal(group_id: str, error: ErrorCode) -> HeartbeatResponse:
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        # Sessions begin when the group is loaded, as in Apache Kafka: until then no member can miss one.
        return HeartbeatResponse()
    return HeartbeatResponse(error_code=error if group_id else ErrorCode.INVALID_GROUP_ID)


API: Final = Api(
    HeartbeatRequest,
    broker=handle,
    needs=needs(on_group, AclOperation.READ, "group_id"),
    hook=heartbeat_hook(lambda waiter, _context, request: Heartbeat(waiter, request)),
)
