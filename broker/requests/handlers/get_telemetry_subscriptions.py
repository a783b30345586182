"""GetTelemetrySubscriptions: which of its metrics a client is to push.

Nothing here receives metrics, so this is served and not advertised, as in Apache Kafka without a receiver.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING, Final

from broker.requests.client_metrics import Subscription, subscription_for
from protocol.compression import Codec
from protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from broker.network.connection import RequestContext
    from broker.node.node import Broker

ACCEPTED_CODECS: Final = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)


def handle(
    broker: Broker, context: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    # DIVERGES: Apache Kafka remembers each client, and throttles one that asks before its interval has passed.
    instance_id = request.client_instance_id
    if instance_id == ZERO_UUID:
        instance_id = broker.environment.entropy(16)
    subscription = subscription_of(broker, context, instance_id)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=subscription.id,
        accepted_compression_types=list(ACCEPTED_CODECS),
        push_interval_ms=subscription.push_interval_ms,
        telemetry_max_bytes=broker.config.integer("telemetry.max.bytes"),
        delta_temporality=True,
        requested_metrics=subscription.metrics,
    )


def subscription_of(broker: Broker, context: RequestContext, instance_id: bytes) -> Subscription:
    """What the client of this connection is to push."""
    name, version = context.connection.software
    client = {
        "client_id": context.client_id or "",
        "client_instance_id": urlsafe_b64encode(instance_id).decode().rstrip("="),
        "client_software_name": name,
        "client_software_version": version,
        "client_source_address": context.client_host,
        "client_source_port": str(context.connection.client_port),
    }
    return subscription_for(broker.image.configs, instance_id, client)
