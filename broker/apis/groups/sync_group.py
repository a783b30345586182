"""SyncGroup (API key 14, versions 0-5; KIP-345, KIP-559): sends and receives the assignment of a generation.

3: static members (KIP-345) · 5: type and name of the protocol (KIP-559). The reply waits until the assignment is
committed.
"""

from __future__ import annotations

from typing import Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.coordinator import submit_event
from moldau.broker.apis.lists import one_pass
from moldau.broker.apis.needs import Answer, all_of, needs, on_group
from moldau.broker.apis.services import Services
from moldau.broker.network.route import RequestContext
from moldau.broker.runtime.pending import MEMBERS, Reply
from moldau.coordinator.classic.events import Sync
from moldau.coordinator.classic.rebalance import sync_refusal
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from moldau.protocol.refusals import refused
from moldau.security.access import AclOperation


def handle(services: Services, context: RequestContext, request: SyncGroupRequest) -> Reply[SyncGroupResponse]:
    return submit_event(
        services.groups.runner_of(request.group_id),
        context.version,
        lambda waiter: Sync(waiter, request),
        lambda error: refusal(request.group_id, error),
        waits_for=MEMBERS,
    )


def refusal(group_id: str, error: ErrorCode) -> SyncGroupResponse:
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        # DIVERGES: what the member waits for is lost, so it has to join again. Apache passes this error on, which
        # consumers take for a fatal one when they sync.
        return sync_refusal(ErrorCode.REBALANCE_IN_PROGRESS)
    return sync_refusal(error if group_id else ErrorCode.INVALID_GROUP_ID)


PROTOCOL_VERSION: Final = 5
"""The first version in which members name the protocol."""


def check_protocol_names(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """A rule: like Apache Kafka, refuse a request without the protocol's type or name before the ACLs are checked."""
    assert isinstance(request, SyncGroupRequest)
    lacks = context.version >= PROTOCOL_VERSION and None in (request.protocol_type, request.protocol_name)
    if lacks:
        return refused(request, context.version, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return answer(context, request)


API: Final = Api(
    SyncGroupRequest,
    broker=handle,
    needs=all_of(check_protocol_names, needs(on_group, AclOperation.READ, "group_id")),
    lists=[
        one_pass(
            "the assignments become those of the members, of which group.max.size bounds the number", "assignments"
        )
    ],
)
