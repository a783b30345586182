"""StreamsGroupTopologyDescriptionUpdate (API key 93, version 0; KIP-1331): descriptions of topologies are not stored.

In Apache Kafka a plugin in Java stores them, and without one it answers as here. The heartbeats ask no member for one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from moldau.broker.metadata.cluster_view import ClusterView
from moldau.broker.requests.handlers.streams_group_heartbeat import FEATURE
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
)

if TYPE_CHECKING:
    from moldau.broker.network.route import RequestContext

NO_PLUGIN: Final = "The broker has no streams group topology description plugin configured."


class TopologyDescriptionServices(Protocol):
    @property
    def cluster(self) -> ClusterView: ...


def handle(
    services: TopologyDescriptionServices,
    context: RequestContext,
    request: StreamsGroupTopologyDescriptionUpdateRequest,
) -> StreamsGroupTopologyDescriptionUpdateResponse:
    is_on = bool(services.cluster.image.features.levels.get(FEATURE, 0))
    return StreamsGroupTopologyDescriptionUpdateResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=NO_PLUGIN if is_on else None
    )
