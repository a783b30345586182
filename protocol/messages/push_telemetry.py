"""PushTelemetry (API 72): a client pushes its metrics."""

from __future__ import annotations

from moldau.protocol.schema import Bytes, Int8, Int16, Int32, Uuid, message


@message(key=72, versions="0", flexible="0+")
class PushTelemetryRequest:
    client_instance_id: Uuid
    subscription_id: Int32
    terminating: bool
    compression_type: Int8
    metrics: Bytes


@message(key=72, versions="0", flexible="0+")
class PushTelemetryResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
