"""ConsumerGroupHeartbeat (API key 68, versions 0-1; KIP-848, KIP-1082): members of a consumer group join, stay and
leave.

1: the member chooses its own id, and may subscribe by a regular expression (KIP-1082). The reply waits until the
changes of the heartbeat are committed. The topics of a regular expression are filtered by the ACLs when it is resolved.

DIVERGES: a client without rights on the group or the topics is told so also if group.version is 0; Apache Kafka answers
UNSUPPORTED_VERSION before it asks the ACLs.
"""

from __future__ import annotations

from typing import Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.coordinator import MEMBER_TOPICS_MAX, heartbeat_hook, submit_event, submit_heartbeat
from moldau.broker.apis.lists import at_most
from moldau.broker.apis.needs import all_of, needs, needs_each, on_group, on_topic
from moldau.broker.apis.services import Services
from moldau.broker.network.route import RequestContext
from moldau.broker.runtime.pending import EXECUTOR, Pending, Reply, call_with_response
from moldau.coordinator.consumer.events import ConsumerHeartbeat
from moldau.coordinator.consumer.heartbeat import refused
from moldau.coordinator.group.membership import Refusal
from moldau.coordinator.runtime.machine import Waiter
from moldau.kraft.controller.topics.new_partitions import NEW_PARTITIONS_MAX
from moldau.kraft.features import GROUP_VERSION
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from moldau.security.access import AclOperation


def handle(services: Services, context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> object:
    if not services.groups.serves(GROUP_VERSION, services.cluster.image.features.levels):
        return refused(Refusal(ErrorCode.UNSUPPORTED_VERSION))
    fresh_id = "" if request.member_id else services.groups.fresh_id()

    def submitted() -> Reply[ConsumerGroupHeartbeatResponse]:
        return submit_event(
            services.groups.runner_of(request.group_id),
            context.version,
            lambda waiter: event_of(waiter, context, request, fresh_id),
            lambda error: refused(Refusal(error if request.group_id else ErrorCode.INVALID_REQUEST)),
        )

    def with_regex() -> object:
        regex = request.subscribed_topic_regex
        if not regex:
            return submitted()
        reply: Pending[ConsumerGroupHeartbeatResponse] = Pending(waits_for=EXECUTOR)
        services.groups.compile_regex(regex, lambda: call_with_response(submitted(), reply.complete))
        return reply

    return submit_heartbeat(services, context, request.subscribed_topic_names, with_regex)


def event_of(
    waiter: Waiter, context: RequestContext, request: ConsumerGroupHeartbeatRequest, fresh_id: str = ""
) -> ConsumerHeartbeat:
    client_id, client_host = context.client_id or "", f"/{context.client_host}"
    return ConsumerHeartbeat(waiter, request, client_id, client_host, fresh_id, context.access)


API: Final = Api(
    ConsumerGroupHeartbeatRequest,
    broker=handle,
    needs=all_of(
        needs(on_group, AclOperation.READ, "group_id"),
        needs_each(on_topic, AclOperation.DESCRIBE, "subscribed_topic_names"),
    ),
    lists=[
        at_most(MEMBER_TOPICS_MAX, "subscribed_topic_names", "topic_partitions"),
        at_most(NEW_PARTITIONS_MAX, "topic_partitions.partitions"),
    ],
    hook=heartbeat_hook(event_of, GROUP_VERSION),
)
