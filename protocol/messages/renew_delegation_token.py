"""RenewDelegationToken (API 39): prolong a delegation token (KIP-48)."""

from __future__ import annotations

from moldau.protocol.schema import Bytes, Int16, Int32, Int64, message


@message(key=39, versions="1-2", flexible="2+")
class RenewDelegationTokenRequest:
    hmac: Bytes
    renew_period_ms: Int64


@message(key=39, versions="1-2", flexible="2+")
class RenewDelegationTokenResponse:
    error_code: Int16 = 0
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32 = 0
