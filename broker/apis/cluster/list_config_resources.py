"""ListConfigResources (API key 74, versions 0-1; KIP-714, KIP-1142): the names of resources with settings.

0: client metrics subscriptions alone (KIP-714) · 1: also topics, brokers, loggers and groups (KIP-1142).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.cluster.alter_configs import BROKER_LOGGER
from moldau.broker.apis.lists import at_most
from moldau.broker.apis.needs import needs_cluster
from moldau.broker.apis.parts import Answering
from moldau.broker.apis.services import Services
from moldau.broker.network.route import RequestContext
from moldau.kraft.controller.apis import ENTRIES_MAX
from moldau.kraft.image.configs import ResourceType
from moldau.kraft.image.metadata_image import MetadataImage
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from moldau.security.access import AclOperation

LISTABLE: Final = (
    ResourceType.TOPIC,
    ResourceType.BROKER,
    BROKER_LOGGER,
    ResourceType.CLIENT_METRICS,
    ResourceType.GROUP,
)


def handle(services: Services, context: RequestContext, request: ListConfigResourcesRequest) -> object:
    # Version 0 was made for client metrics alone and names no types; from 1 on, no types means all.
    types: Iterable[int] = dict.fromkeys(request.resource_types) or LISTABLE
    if context.version == 0:
        types = (ResourceType.CLIENT_METRICS,)
    if not set(types) <= set(LISTABLE):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return services.long_requests.answer(context, _listed(services.cluster.image, types))


def _listed(image: MetadataImage, types: Iterable[int]) -> Answering:
    response = ListConfigResourcesResponse()
    for kind in types:
        for name in _names(image, kind):
            yield
            if name:
                response.config_resources.append(ConfigResource(resource_name=name, resource_type=kind))
    return response


def _names(image: MetadataImage, kind: int) -> Iterable[str]:
    """The names of the resources of a type. Resources of other types may be among them as empty names."""
    if kind == ResourceType.TOPIC:
        return image.topics.ids
    if kind in (ResourceType.BROKER, BROKER_LOGGER):
        return map(str, image.cluster.brokers)
    return (resource.name if resource.type == kind else "" for resource in image.configs.by_resource)


API: Final = Api(
    ListConfigResourcesRequest,
    broker=handle,
    needs=needs_cluster(AclOperation.DESCRIBE_CONFIGS),
    lists=[at_most(ENTRIES_MAX, "resource_types")],
)
