"""ApiVersions (API key 18, versions 0-5; KIP-35, KIP-511, KIP-584, KIP-1242): the APIs and features that this listener
serves.

3: clients name their library (KIP-511), and get the features of the cluster (KIP-584) whose lowest level is above 0 ·
4: clients also get the features whose lowest level is 0 · 5: a client may name the cluster and the broker that it
expects; if it has reached another broker, it must begin again with its bootstrap servers (KIP-1242). A request in a
version that is not served is answered in version 0 (KIP-511), so that the client can try again.
"""

from __future__ import annotations

import re
from typing import Final, cast

from moldau.broker.apis.api import Api
from moldau.broker.apis.needs import open_to_all
from moldau.broker.apis.services import Services
from moldau.broker.network.route import ListenerRole, RequestContext, Route
from moldau.kraft.features import KRAFT_VERSION, SUPPORTED_FEATURES
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

PRODUCE: Final = 0
SOFTWARE_VERSION: Final = 3
"""The first version in which clients name their library, and responses have features."""
ZERO_MINIMUM_VERSION: Final = 4
"""The first version whose clients can read a supported feature with the lowest level 0."""
NO_NODE: Final = -1
"""The node id of a client that does not name a broker."""
SOFTWARE_LENGTH_MAX: Final = 255
SOFTWARE_NAME_PATTERN: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")


def handle(services: Services, context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if context.version >= SOFTWARE_VERSION:
        software = (request.client_software_name, request.client_software_version)
        if not all(map(SOFTWARE_NAME_PATTERN.fullmatch, software)):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        refusal = refusal_of_meant_broker(services, context, request)
        if refusal is not ErrorCode.NONE:
            return ApiVersionsResponse(error_code=refusal)
        # DIVERGES: Apache Kafka keeps all of the two texts, which may be 64 KB a connection.
        context.connection.software = (software[0][:SOFTWARE_LENGTH_MAX], software[1][:SOFTWARE_LENGTH_MAX])
    return _told(services, context)


def _told(services: Services, context: RequestContext) -> ApiVersionsResponse:
    """The response. It is one object for all clients of the same listener and version, until the metadata changes."""
    image = services.cluster.image
    kraft_version, tells_zero = services.quorum.kraft_version, context.version >= ZERO_MINIMUM_VERSION
    asked, told_of = (context.listener.name, tells_zero), (image.provenance, image.features, kraft_version)
    known_of, known = services.told_versions.get(asked, (None, None))
    if known_of == told_of:
        return cast("ApiVersionsResponse", known)
    levels = {**image.features.levels, KRAFT_VERSION: kraft_version}
    release = services.config.text_or_none("moldau.emulated.release")
    told = frozenset(SUPPORTED_FEATURES)
    if release is not None:
        from moldau.broker.apis.releases import features_of

        told = told & features_of(release)
    response = ApiVersionsResponse(
        api_keys=[_range(route) for route in context.listener.routes.values() if route.is_advertised],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=first, max_version=last)
            for name, (first, last) in SUPPORTED_FEATURES.items()
            if name in told and last > 0 and (first > 0 or tells_zero)
        ],
        finalized_features_epoch=image.provenance.end_offset - 1,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in levels.items()
            if level > 0 and (release is None or name in told)
        ],
    )
    services.told_versions[asked] = told_of, response
    return response


def refusal_of_meant_broker(services: Services, context: RequestContext, request: ApiVersionsRequest) -> ErrorCode:
    """REBOOTSTRAP_REQUIRED if the client expects another cluster or broker, INVALID_REQUEST if it names only one of the
    two, otherwise NONE. A controller does not compare them."""
    if (request.cluster_id is None) != (request.node_id == NO_NODE):
        return ErrorCode.INVALID_REQUEST
    if request.cluster_id is None or context.listener.role is not ListenerRole.BROKER:
        return ErrorCode.NONE
    is_meant = request.cluster_id == services.cluster.id and request.node_id == services.node_id
    return ErrorCode.NONE if is_meant else ErrorCode.REBOOTSTRAP_REQUIRED


def unsupported_version(route: Route) -> ApiVersionsResponse:
    """The response (version 0) to a version that is not served: the versions with which the client can try again."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[_range(route)])


def _range(route: Route) -> ApiVersion:
    # Old librdkafka turns compression off unless version 0 of Produce is shown; a request in 0 to 2 is refused.
    first = 0 if route.key == PRODUCE else route.first_version
    return ApiVersion(api_key=route.key, min_version=first, max_version=route.last_version)


API: Final = Api(
    ApiVersionsRequest,
    broker=handle,
    controller=handle,
    needs=open_to_all,
    refuse_version=unsupported_version,
    is_shared=True,
)
