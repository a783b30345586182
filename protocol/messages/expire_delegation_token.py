"""ExpireDelegationToken (API 40): change the expiry time of a delegation token (KIP-48)."""

from __future__ import annotations

from moldau.protocol.schema import Bytes, Int16, Int32, Int64, message


@message(key=40, versions="1-2", flexible="2+")
class ExpireDelegationTokenRequest:
    hmac: Bytes
    expiry_time_period_ms: Int64


@message(key=40, versions="1-2", flexible="2+")
class ExpireDelegationTokenResponse:
    error_code: Int16 = 0
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32 = 0
