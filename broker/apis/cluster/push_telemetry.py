"""PushTelemetry (API key 72, version 0; KIP-714): a client's metrics are checked and dropped.

No receiver of client metrics exists here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.cluster.get_telemetry_subscriptions import ACCEPTED_CODECS, subscription_of
from moldau.broker.apis.needs import open_to_all
from moldau.protocol.compression import Codec
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from moldau.protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from moldau.broker.apis.services import Services
    from moldau.broker.network.route import RequestContext


def handle(services: Services, context: RequestContext, request: PushTelemetryRequest) -> PushTelemetryResponse:
    return PushTelemetryResponse(error_code=_refusal(services, context, request))


def _refusal(services: Services, context: RequestContext, request: PushTelemetryRequest) -> ErrorCode:
    if request.client_instance_id == ZERO_UUID:
        return ErrorCode.INVALID_REQUEST
    if request.subscription_id != subscription_of(services.cluster.image, context, request.client_instance_id).id:
        return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    if request.compression_type not in (Codec.NONE, *ACCEPTED_CODECS):
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    if len(request.metrics) > services.config.integer("telemetry.max.bytes"):
        return ErrorCode.TELEMETRY_TOO_LARGE
    return ErrorCode.NONE


API: Final = Api(
    PushTelemetryRequest,
    broker=handle,
    needs=open_to_all,
)
