"""ShareGroupHeartbeat (API key 76, version 1; KIP-932): members of a share group join, stay and go.

The reply waits until what the heartbeat changes is committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from moldau.broker.coordinators.groups import Groups
from moldau.broker.metadata.cluster_view import ClusterView
from moldau.broker.requests.handlers.coordinator_request import submit_event
from moldau.broker.runtime.pending import Pending
from moldau.coordinator.share.events import ShareHeartbeat
from moldau.coordinator.share.heartbeat import Refusal, refused
from moldau.kraft.features import SHARE_VERSION
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

if TYPE_CHECKING:
    from moldau.broker.network.route import RequestContext


class ShareGroupServices(Protocol):
    @property
    def groups(self) -> Groups: ...

    @property
    def cluster(self) -> ClusterView: ...


def handle(
    services: ShareGroupServices, context: RequestContext, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse | Pending[ShareGroupHeartbeatResponse]:
    if not services.cluster.image.features.levels.get(SHARE_VERSION, 0):
        return refused(Refusal(ErrorCode.UNSUPPORTED_VERSION))
    return submit_event(
        services.groups.runner_of(request.group_id),
        context.version,
        lambda waiter: ShareHeartbeat(waiter, request, context.client_id or "", f"/{context.client_host}"),
        lambda error: refused(Refusal(error)),
    )
