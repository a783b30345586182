"""GetTelemetrySubscriptions (API key 71, version 0; KIP-714): the metrics that a client is to push.

No receiver of client metrics exists here, so the API is served and not advertised, as in Apache Kafka without a
receiver.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING, Final, Protocol

from moldau.broker.requests.client_metrics import MetricsSubscription, subscription_for
from moldau.protocol.compression import Codec
from moldau.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from moldau.protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from moldau.broker.config.config import Config
    from moldau.broker.metadata.cluster_view import ClusterView
    from moldau.broker.network.route import RequestContext
    from moldau.broker.runtime.environment import Environment
    from moldau.kraft.image.metadata_image import MetadataImage

ACCEPTED_CODECS: Final = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)


class GetTelemetrySubscriptionsServices(Protocol):
    """The services of the node that the handler of GetTelemetrySubscriptions needs."""

    @property
    def environment(self) -> Environment: ...

    @property
    def config(self) -> Config: ...

    @property
    def cluster(self) -> ClusterView: ...


def handle(
    services: GetTelemetrySubscriptionsServices, context: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    # DIVERGES: Apache Kafka remembers each client, and throttles one that asks before its interval has passed.
    instance_id = request.client_instance_id
    if instance_id == ZERO_UUID:
        instance_id = services.environment.entropy(16)
    subscription = subscription_of(services.cluster.image, context, instance_id)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=subscription.id,
        accepted_compression_types=list(ACCEPTED_CODECS),
        push_interval_ms=subscription.push_interval_ms,
        telemetry_max_bytes=services.config.integer("telemetry.max.bytes"),
        delta_temporality=True,
        requested_metrics=subscription.metrics,
    )


def subscription_of(image: MetadataImage, context: RequestContext, instance_id: bytes) -> MetricsSubscription:
    """The metrics that the client of this connection is to push."""
    name, version = context.connection.software
    client = {
        "client_id": context.client_id or "",
        "client_instance_id": urlsafe_b64encode(instance_id).decode().rstrip("="),
        "client_software_name": name,
        "client_software_version": version,
        "client_source_address": context.client_host,
        "client_source_port": str(context.connection.client_port),
    }
    return subscription_for(image.configs, instance_id, client)
