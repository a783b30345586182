"""DescribeDelegationToken (API 41): list delegation tokens (KIP-48)."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Bytes, Int16, Int32, Int64, empty, message, nullable, since, struct


@struct
class DescribeDelegationTokenOwner:
    principal_type: str
    principal_name: str


@message(key=41, versions="1-3", flexible="2+")
class DescribeDelegationTokenRequest:
    owners: Annotated[list[DescribeDelegationTokenOwner] | None, nullable()] = empty()


@struct
class DescribedDelegationTokenRenewer:
    principal_type: str
    principal_name: str


@struct
class DescribedDelegationToken:
    principal_type: str
    principal_name: str
    token_requester_principal_type: Annotated[str, since(3)] = ""
    token_requester_principal_name: Annotated[str, since(3)] = ""
    issue_timestamp: Int64
    expiry_timestamp: Int64
    max_timestamp: Int64
    token_id: str
    hmac: Bytes
    renewers: list[DescribedDelegationTokenRenewer] = empty()


@message(key=41, versions="1-3", flexible="2+")
class DescribeDelegationTokenResponse:
    error_code: Int16 = 0
    tokens: list[DescribedDelegationToken] = empty()
    throttle_time_ms: Int32 = 0
