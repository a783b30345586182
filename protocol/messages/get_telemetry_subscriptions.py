"""GetTelemetrySubscriptions (API 71): the client metrics that a client should push, and how often."""

from __future__ import annotations

from moldau.protocol.schema import Int8, Int16, Int32, Uuid, empty, message


@message(key=71, versions="0", flexible="0+")
class GetTelemetrySubscriptionsRequest:
    client_instance_id: Uuid


@message(key=71, versions="0", flexible="0+")
class GetTelemetrySubscriptionsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    client_instance_id: Uuid
    subscription_id: Int32
    accepted_compression_types: list[Int8] = empty()
    push_interval_ms: Int32
    telemetry_max_bytes: Int32
    delta_temporality: bool
    requested_metrics: list[str] = empty()
