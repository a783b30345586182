"""DescribeClientQuotas (API key 48, versions 0-1; KIP-546): the quotas of the entities that match a filter.

1: tagged fields (KIP-482). A component of the filter is about one type, such as user: the entity has a part of this
type with the given name, the default, or any name. With a strict filter it has no parts of further types.
"""

from __future__ import annotations

from typing import Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.lists import at_most
from moldau.broker.apis.needs import needs_cluster
from moldau.broker.apis.parts import Answering
from moldau.broker.apis.services import Services
from moldau.broker.network.route import RequestContext
from moldau.kraft.controller.apis import ENTRIES_MAX
from moldau.kraft.image.metadata_image import MetadataImage
from moldau.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from moldau.security.access import AclOperation
from moldau.security.quotas.filters import matches, refusal_of


def handle(services: Services, context: RequestContext, request: DescribeClientQuotasRequest) -> object:
    refusal = refusal_of(request.components)
    if refusal is not None:
        return DescribeClientQuotasResponse(error_code=refusal.error, error_message=refusal.message, entries=None)
    return services.long_requests.answer(context, _described(services.cluster.image, request))


def _described(image: MetadataImage, request: DescribeClientQuotasRequest) -> Answering:
    entries = []
    for entity, values in image.quotas.by_entity.items():
        yield
        if matches(entity, request.components, request.strict):
            entries.append(
                EntryData(
                    entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.parts],
                    values=[ValueData(key=key, value=value) for key, value in values.items()],
                )
            )
    return DescribeClientQuotasResponse(entries=entries)


API: Final = Api(
    DescribeClientQuotasRequest,
    broker=handle,
    needs=needs_cluster(AclOperation.DESCRIBE_CONFIGS),
    lists=[at_most(ENTRIES_MAX, "components")],
)
