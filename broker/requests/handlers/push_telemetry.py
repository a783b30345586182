"""PushTelemetry: a client's metrics, looked at and dropped, for nothing here receives them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.requests.handlers.get_telemetry_subscriptions import ACCEPTED_CODECS, subscription_of
from protocol.compression import Codec
from protocol.errors import ErrorCode
from protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from broker.network.connection import RequestContext
    from broker.node.node import Broker


def handle(broker: Broker, context: RequestContext, request: PushTelemetryRequest) -> PushTelemetryResponse:
    return PushTelemetryResponse(error_code=_refusal(broker, context, request))


def _refusal(broker: Broker, context: RequestContext, request: PushTelemetryRequest) -> ErrorCode:
    if request.client_instance_id == ZERO_UUID:
        return ErrorCode.INVALID_REQUEST
    if request.subscription_id != subscription_of(broker, context, request.client_instance_id).id:
        return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    if request.compression_type not in (Codec.NONE, *ACCEPTED_CODECS):
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    if len(request.metrics) > broker.config.integer("telemetry.max.bytes"):
        return ErrorCode.TELEMETRY_TOO_LARGE
    return ErrorCode.NONE
