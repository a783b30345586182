"""ListConfigResources (API key 74, versions 0-1; KIP-714, KIP-1142): the names of resources with settings.

Version 0 lists client metrics subscriptions alone; version 1 also topics, brokers, loggers and groups.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Protocol

from moldau.broker.requests.own_resources import BROKER_LOGGER
from moldau.kraft.image.configs import ResourceType
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from moldau.broker.metadata.cluster_view import ClusterView
    from moldau.broker.network.route import RequestContext

LISTABLE: Final = (
    ResourceType.TOPIC,
    ResourceType.BROKER,
    BROKER_LOGGER,
    ResourceType.CLIENT_METRICS,
    ResourceType.GROUP,
)


class ListConfigResourcesServices(Protocol):
    """The services of the node that the handler of ListConfigResources needs."""

    @property
    def cluster(self) -> ClusterView: ...


def handle(
    services: ListConfigResourcesServices, context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    # Version 0 was made for client metrics alone and names no types; from 1 on, no types means all.
    types: Iterable[int] = dict.fromkeys(request.resource_types) or LISTABLE
    if context.version == 0:
        types = (ResourceType.CLIENT_METRICS,)
    if not set(types) <= set(LISTABLE):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind) for kind in types for name in _names(services, kind)
        ]
    )


def _names(services: ListConfigResourcesServices, kind: int) -> Iterable[str]:
    if kind == ResourceType.TOPIC:
        return services.cluster.image.topics.ids
    if kind in (ResourceType.BROKER, BROKER_LOGGER):
        return map(str, services.cluster.image.cluster.brokers)
    return [
        resource.name
        for resource in services.cluster.image.configs.by_resource
        if resource.type == kind and resource.name
    ]
