"""JoinGroup (API key 11, versions 0-9; KIP-62, KIP-345, KIP-394, KIP-559, KIP-800, KIP-814): joins a classic group.

1: a rebalance timeout (KIP-62) · 4: a member id is required first (KIP-394) · 5: static members (KIP-345) · 7: the type
of the protocol, which like its name is null in refusals (KIP-559) · 8: a reason (KIP-800) · 9: a leader may skip the
assignment (KIP-814). The reply waits until the rebalance is over.
"""

from __future__ import annotations

from typing import Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.coordinator import submit_event
from moldau.broker.apis.lists import at_most
from moldau.broker.apis.needs import needs, on_group
from moldau.broker.apis.services import Services
from moldau.broker.network.route import RequestContext
from moldau.broker.runtime.pending import MEMBERS, Reply
from moldau.coordinator.classic.events import Join
from moldau.coordinator.classic.rebalance import join_refusal
from moldau.kraft.controller.apis import ENTRIES_MAX
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from moldau.security.access import AclOperation


def handle(services: Services, context: RequestContext, request: JoinGroupRequest) -> Reply[JoinGroupResponse]:
    client_id, client_host = context.client_id or "", f"/{context.client_host}"
    return submit_event(
        services.groups.runner_of(request.group_id),
        context.version,
        lambda waiter: Join(waiter, request, client_id, client_host, services.groups.fresh_id()),
        lambda error: refusal(request, context.version, error),
        waits_for=MEMBERS,
    )


def refusal(request: JoinGroupRequest, version: int, error: ErrorCode) -> JoinGroupResponse:
    return join_refusal(version, error if request.group_id else ErrorCode.INVALID_GROUP_ID, request.member_id)


API: Final = Api(
    JoinGroupRequest,
    broker=handle,
    needs=needs(on_group, AclOperation.READ, "group_id"),
    lists=[at_most(ENTRIES_MAX, "protocols")],
)
