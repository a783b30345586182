"""Client metrics (KIP-714). This server has no receiver of metrics. So it serves these APIs, but does not advertise
them, like Apache Kafka without a receiver.

GetTelemetrySubscriptions (API key 71, version 0; KIP-714): the metrics that a client is to push.
PushTelemetry (API key 72, version 0; KIP-714): the metrics of a client are checked and dropped.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from moldau.broker.apis.api import Api
from moldau.broker.apis.needs import open_to_all
from moldau.broker.apis.services import Services
from moldau.broker.config.catalogue import client_metrics_catalogue
from moldau.broker.config.values import default_value, linear_matcher
from moldau.broker.network.route import RequestContext
from moldau.kraft.image.configs import ConfigsImage, ResourceType
from moldau.kraft.image.metadata_image import MetadataImage
from moldau.protocol.compression import Codec
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from moldau.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from moldau.protocol.primitives import crc32c
from moldau.protocol.schema import ZERO_UUID

ACCEPTED_CODECS: Final = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)


def get(
    services: Services, context: RequestContext, request: GetTelemetrySubscriptionsRequest
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


def push(services: Services, context: RequestContext, request: PushTelemetryRequest) -> PushTelemetryResponse:
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


METRICS: Final = "metrics"
INTERVAL_MS: Final = "interval.ms"
MATCH_SETTING: Final = "match"


class MetricsSubscription(NamedTuple):
    """The metrics that one client has to push, as prefixes of their names; `*` means all metrics."""

    id: int
    push_interval_ms: int
    metrics: list[str]


def subscription_of(image: MetadataImage, context: RequestContext, instance_id: bytes) -> MetricsSubscription:
    """Merge the subscriptions that match the client of this connection. The id of the result is a checksum of them and
    of the client's instance id."""
    name, version = context.connection.software
    client = {
        "client_id": context.client_id or "",
        "client_instance_id": urlsafe_b64encode(instance_id).decode().rstrip("="),
        "client_software_name": name,
        "client_software_version": version,
        "client_source_address": context.client_host,
        "client_source_port": str(context.connection.client_port),
    }
    default_ms = default_value(client_metrics_catalogue()[INTERVAL_MS])
    assert isinstance(default_ms, int)
    interval_ms = default_ms
    metrics: dict[str, None] = {}
    seen = instance_id
    for name, settings in _matching(image.configs, client):
        interval_ms = min(interval_ms, int(settings.get(INTERVAL_MS, default_ms)))
        metrics.update(dict.fromkeys(_items(settings.get(METRICS, ""))))
        seen += repr((name, sorted(settings.items()))).encode()
    wanted = ["*"] if "*" in metrics else list(metrics)
    unsigned = crc32c(seen, 0)
    return MetricsSubscription(unsigned - (1 << 32) if unsigned >> 31 else unsigned, interval_ms, wanted)


def _matching(configs: ConfigsImage, client: Mapping[str, str]) -> Iterator[tuple[str, Mapping[str, str]]]:
    subscriptions = (each for each in configs.by_resource.items() if each[0].type == ResourceType.CLIENT_METRICS)
    for resource, settings in sorted(subscriptions):
        if _matches(settings.get(MATCH_SETTING, ""), client):
            yield resource.name, settings


def _matches(patterns: str, client: Mapping[str, str]) -> bool:
    for each in _items(patterns):
        what, _, pattern = each.partition("=")
        match = linear_matcher(pattern.strip())
        if match is None or not match(client.get(what.strip(), "")):
            return False
    return True


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


APIS: Final = (
    Api(GetTelemetrySubscriptionsRequest, broker=get, needs=open_to_all),
    Api(PushTelemetryRequest, broker=push, needs=open_to_all),
)
