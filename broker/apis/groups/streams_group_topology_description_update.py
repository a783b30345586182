"""StreamsGroupTopologyDescriptionUpdate (API key 93, version 0; KIP-1331): refused, because no descriptions are stored.

In Apache Kafka a Java plugin stores descriptions; without a plugin its answer is the same. Heartbeats here do not ask
for descriptions.
"""

from __future__ import annotations

from typing import Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.groups.streams_group_heartbeat import FEATURE
from moldau.broker.apis.lists import at_most
from moldau.broker.apis.needs import needs, on_group
from moldau.broker.apis.services import Services
from moldau.broker.network.route import RequestContext
from moldau.kraft.controller.apis import ENTRIES_MAX
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
)
from moldau.security.access import AclOperation

NO_PLUGIN: Final = "The broker has no streams group topology description plugin configured."


def handle(
    services: Services, context: RequestContext, request: StreamsGroupTopologyDescriptionUpdateRequest
) -> StreamsGroupTopologyDescriptionUpdateResponse:
    is_on = bool(services.cluster.image.features.levels.get(FEATURE, 0))
    return StreamsGroupTopologyDescriptionUpdateResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=NO_PLUGIN if is_on else None
    )


NODE_LISTS: Final = ("source_topics", "stores", "successors")
"""The lists in a node of a topology's description."""
NODES: Final = ("subtopologies.nodes", "global_stores.source", "global_stores.processor")
DESCRIPTION: Final = "topology_description"

API: Final = Api(
    StreamsGroupTopologyDescriptionUpdateRequest,
    broker=handle,
    needs=needs(on_group, AclOperation.READ, "group_id"),
    lists=[
        at_most(
            ENTRIES_MAX,
            *(f"{DESCRIPTION}.{part}" for part in ("subtopologies", "subtopologies.nodes", "global_stores")),
        ),
        at_most(ENTRIES_MAX, *(f"{DESCRIPTION}.{node}.{each}" for node in NODES for each in NODE_LISTS)),
    ],
)
