"""CreateDelegationToken (API 38): issue a delegation token (KIP-48)."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Bytes, Int16, Int32, Int64, empty, message, nullable, since, struct


@struct
class CreatableRenewers:
    principal_type: str
    principal_name: str


@message(key=38, versions="1-3", flexible="2+")
class CreateDelegationTokenRequest:
    owner_principal_type: Annotated[str | None, since(3), nullable(3)] = ""
    owner_principal_name: Annotated[str | None, since(3), nullable(3)] = ""
    renewers: list[CreatableRenewers] = empty()
    max_lifetime_ms: Int64


@message(key=38, versions="1-3", flexible="2+")
class CreateDelegationTokenResponse:
    error_code: Int16 = 0
    principal_type: str
    principal_name: str
    token_requester_principal_type: Annotated[str, since(3)] = ""
    token_requester_principal_name: Annotated[str, since(3)] = ""
    issue_timestamp_ms: Int64
    expiry_timestamp_ms: Int64
    max_timestamp_ms: Int64
    token_id: str
    hmac: Bytes
    throttle_time_ms: Int32 = 0
