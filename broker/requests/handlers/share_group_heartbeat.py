"""ShareGroupHeartbeat (API key 76, version 1; KIP-932): members of a share group join, stay and go.

The reply waits until what the heartbeat changes is committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.broker.requests.handlers.coordinator_request import after_hashes, submit_event
from moldau.broker.runtime.pending import Pending
from moldau.coordinator.share.events import ShareHeartbeat
from moldau.coordinator.share.heartbeat import Refusal, refused
from moldau.kraft.features import SHARE_VERSION
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

if TYPE_CHECKING:
    from moldau.broker.network.route import RequestContext
    from moldau.broker.requests.services import Services


def handle(services: Services, context: RequestContext, request: ShareGroupHeartbeatRequest) -> object:
    if not services.cluster.image.features.levels.get(SHARE_VERSION, 0):
        return refused(Refusal(ErrorCode.UNSUPPORTED_VERSION))
    client_id, client_host = context.client_id or "", f"/{context.client_host}"

    def submitted() -> ShareGroupHeartbeatResponse | Pending[ShareGroupHeartbeatResponse]:
        return submit_event(
            services.groups.runner_of(request.group_id),
            context.version,
            lambda waiter: ShareHeartbeat(waiter, request, client_id, client_host),
            lambda error: refused(Refusal(error)),
        )

    names = request.subscribed_topic_names
    if not names:
        return submitted()
    return services.long_requests.answer(context, after_hashes(services, names, submitted))
