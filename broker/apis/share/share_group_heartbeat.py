"""ShareGroupHeartbeat (API key 76, version 1; KIP-932): members of a share group join, stay and leave.

The reply waits until the changes of the heartbeat are committed.

DIVERGES: a client without rights on the group or the topics is told so also if share.version is 0; Apache Kafka answers
UNSUPPORTED_VERSION before it asks the ACLs.
"""

from __future__ import annotations

from typing import Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.coordinator import heartbeat_hook, submit_event, submit_heartbeat
from moldau.broker.apis.lists import at_most
from moldau.broker.apis.needs import all_of, needs, needs_each, on_group, on_topic
from moldau.broker.apis.services import Services
from moldau.broker.network.route import RequestContext
from moldau.broker.runtime.pending import Reply
from moldau.coordinator.group.membership import Refusal
from moldau.coordinator.runtime.machine import Waiter
from moldau.coordinator.share.events import ShareHeartbeat
from moldau.coordinator.share.heartbeat import refused
from moldau.kraft.controller.apis import ENTRIES_MAX
from moldau.kraft.features import SHARE_VERSION
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from moldau.security.access import AclOperation


def handle(services: Services, context: RequestContext, request: ShareGroupHeartbeatRequest) -> object:
    if not services.cluster.image.features.levels.get(SHARE_VERSION, 0):
        return refused(Refusal(ErrorCode.UNSUPPORTED_VERSION))

    def submitted() -> Reply[ShareGroupHeartbeatResponse]:
        return submit_event(
            services.groups.runner_of(request.group_id),
            context.version,
            lambda waiter: event_of(waiter, context, request),
            lambda error: refused(Refusal(error)),
        )

    return submit_heartbeat(services, context, request.subscribed_topic_names, submitted)


def event_of(waiter: Waiter, context: RequestContext, request: ShareGroupHeartbeatRequest) -> ShareHeartbeat:
    return ShareHeartbeat(waiter, request, context.client_id or "", f"/{context.client_host}")


API: Final = Api(
    ShareGroupHeartbeatRequest,
    broker=handle,
    needs=all_of(
        needs(on_group, AclOperation.READ, "group_id"),
        needs_each(on_topic, AclOperation.DESCRIBE, "subscribed_topic_names"),
    ),
    lists=[at_most(ENTRIES_MAX, "subscribed_topic_names")],
    hook=heartbeat_hook(event_of, SHARE_VERSION),
)
