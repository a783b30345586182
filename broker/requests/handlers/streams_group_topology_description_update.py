"""StreamsGroupTopologyDescriptionUpdate (API key 93, version 0; KIP-1331): descriptions of topologies are not stored.

In Apache Kafka a plugin in Java stores them, and without one it answers as here. The heartbeats ask no member for one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moldau.broker.requests.handlers.streams_group_heartbeat import FEATURE
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
)

if TYPE_CHECKING:
    from moldau.broker.network.route import RequestContext
    from moldau.broker.requests.services import Services

NO_PLUGIN: Final = "The broker has no streams group topology description plugin configured."


def handle(
    services: Services,
    context: RequestContext,
    request: StreamsGroupTopologyDescriptionUpdateRequest,
) -> StreamsGroupTopologyDescriptionUpdateResponse:
    is_on = bool(services.cluster.image.features.levels.get(FEATURE, 0))
    return StreamsGroupTopologyDescriptionUpdateResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=NO_PLUGIN if is_on else None
    )
